//! The name of the lock: a literal with arguments.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Error, Expr, Ident, LitStr};

/// The longest name, as the library has it.
const NAME_MAX: usize = 512;

/// A name as it was written, checked.
pub(crate) struct Name {
    pieces: Vec<Piece>,
    span: Span,
}

enum Piece {
    Text(String),
    /// An argument, and what follows its colon.
    Argument(Ident, String),
}

impl Name {
    /// Reads a literal like that of `format!`.
    pub(crate) fn new(literal: &LitStr) -> syn::Result<Self> {
        let (text, span) = (literal.value(), literal.span());
        let refuse = |what: String| Err(Error::new(span, what));
        let pieces = pieces(&text, span)?;
        if pieces.is_empty() {
            return refuse("the name is empty: a name has 1 to 512 bytes".to_owned());
        }
        let fixed = || {
            pieces.iter().filter_map(|piece| match piece {
                Piece::Text(text) => Some(text),
                Piece::Argument(..) => None,
            })
        };
        if let Some(bad) = fixed()
            .flat_map(|text| text.chars())
            .find(|c| c.is_control())
        {
            return refuse(format!(
                "the name has the control character U+{:04X}: names have none",
                u32::from(bad)
            ));
        }
        if fixed().map(String::len).sum::<usize>() > NAME_MAX {
            return refuse("the name is longer than 512 bytes".to_owned());
        }
        kept_apart(&pieces).map_err(|what| Error::new(span, what))?;
        Ok(Self { pieces, span })
    }

    /// Whether an argument has this name.
    pub(crate) fn has(&self, called: &Ident) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Argument(argument, _) if argument == called))
    }

    /// An expression that makes the name, a `String`. `given` are the arguments that have an expression.
    pub(crate) fn expression(&self, given: &[(Ident, Expr)]) -> TokenStream {
        // The place of the literal: errors about an argument point at it.
        let at = Span::mixed_site().located_at(self.span);
        let pushes = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => quote_spanned!(at=> name.push_str(#text);),
            Piece::Argument(called, how) => {
                let mut format = syn::LitStr::new(&format!("{{{how}}}"), self.span);
                format.set_span(self.span);
                let value = given.iter().find(|(given, _)| given == called);
                let value = value.map_or_else(
                    || quote_spanned!(self.span=> #called),
                    |(_, value)| quote_spanned!(at=> #value),
                );
                quote_spanned!(at=>
                    name.push_str(&::leasehold::Name::part(::core::format_args!(#format, #value)));
                )
            }
        });
        quote_spanned!(at=> {
            let mut name = ::std::string::String::new();
            #(#pushes)*
            name
        })
    }
}

/// Splits a literal at its braces.
fn pieces(text: &str, span: Span) -> syn::Result<Vec<Piece>> {
    let (mut pieces, mut fixed, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        fixed.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            fixed.push_str(brace);
            rest = after;
            continue;
        }
        let end = rest.find('}').filter(|_| brace == "{").ok_or_else(|| {
            let what = "a brace of the name has no other half: write `{{` or `}}` for the character itself";
            Error::new(span, what)
        })?;
        if !fixed.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut fixed)));
        }
        pieces.push(argument(&rest[..end], span)?);
        rest = &rest[end + 1..];
    }
    fixed.push_str(rest);
    if !fixed.is_empty() {
        pieces.push(Piece::Text(fixed));
    }
    Ok(pieces)
}

/// What is between two braces.
fn argument(text: &str, span: Span) -> syn::Result<Piece> {
    let (called, how) = text.find(':').map_or((text, ""), |at| text.split_at(at));
    let mut ident: Ident = syn::parse_str(called.trim()).map_err(|_| {
        let what = format!(
            "`{{{text}}}` has no name: write an argument of the function, as `{{id}}`, or name an expression, as \
             `\"stock:{{item}}\", item = order.item`"
        );
        Error::new(span, what)
    })?;
    if how.contains(['$', '*']) {
        let what =
            format!("`{{{text}}}` takes its width or precision from an argument: write a number");
        return Err(Error::new(span, what));
    }
    ident.set_span(span);
    Ok(Piece::Argument(ident, how.to_owned()))
}

/// Refuses arguments that nothing keeps apart: 1 and 23 would make the same name as 12 and 3.
fn kept_apart(pieces: &[Piece]) -> Result<(), String> {
    let mut open: Option<&Ident> = None;
    for piece in pieces {
        match (piece, open) {
            // `Name::part` never leaves these in an argument.
            (Piece::Text(text), _) => {
                let apart =
                    |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.%".contains(c);
                if text.contains(apart) {
                    open = None;
                }
            }
            (Piece::Argument(second, _), Some(first)) => {
                return Err(format!(
                    "nothing keeps `{{{first}}}` and `{{{second}}}` apart, so that different arguments could make the \
                     same name: write a character between them that no argument has, such as `:` or `/`"
                ));
            }
            (Piece::Argument(first, _), None) => open = Some(first),
        }
    }
    Ok(())
}
