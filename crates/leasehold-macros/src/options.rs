//! What is written in the attribute's parentheses.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, Lit, LitStr, Token};

use crate::duration;
use crate::name::Name;

const OPTIONS: &str =
    "`read`, `write`, `permits`, `of`, `wait`, `try`, `busy`, `lease`, `guard`, `lost`";

/// The client, the name, and the options.
pub(crate) struct Options {
    pub(crate) client: Expr,
    pub(crate) name: Name,
    /// Arguments of the name that have an expression.
    pub(crate) given: Vec<(Ident, Expr)>,
    pub(crate) kind: Kind,
    pub(crate) patience: Patience,
    /// What the function returns when the lock is busy.
    pub(crate) busy: Option<Expr>,
    /// In milliseconds.
    pub(crate) lease: Option<u64>,
    /// What the body calls its guard.
    pub(crate) guard: Option<Ident>,
    pub(crate) lost: Option<(Ident, Lost)>,
}

pub(crate) enum Kind {
    Mutex,
    Read,
    Write,
    /// How many, of how many.
    Permits(Box<Expr>, Box<Expr>),
}

pub(crate) enum Patience {
    Wait,
    /// In milliseconds.
    Within(u64),
    Try,
}

/// What a loss does to the body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Drop,
    Finish,
}

/// The options as they were written: each word, and what is right of its `=`.
#[derive(Default)]
struct Written {
    words: Vec<Ident>,
    permits: Option<Expr>,
    of: Option<Expr>,
    wait: Option<u64>,
    busy: Option<Expr>,
    lease: Option<u64>,
    guard: Option<Ident>,
    lost: Option<(Ident, Lost)>,
    given: Vec<(Ident, Expr)>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let usage = "write the client and the name: `#[locked(self.locks, \"stock:{id}\")]`; there is no global client";
        if input.is_empty() {
            return Err(input.error(usage));
        }
        let client: Expr = input.parse()?;
        if let Expr::Lit(literal) = &client {
            return Err(Error::new_spanned(literal, usage));
        }
        if input.is_empty() {
            return Err(Error::new_spanned(client, usage));
        }
        let _: Token![,] = input.parse()?;
        let literal: LitStr = input
            .parse()
            .map_err(|error| Error::new(error.span(), usage))?;
        let name = Name::new(&literal)?;
        let mut written = Written::default();
        while !input.is_empty() {
            let _: Token![,] = input.parse()?;
            if input.is_empty() {
                break;
            }
            written.read(input, &name)?;
        }
        let (kind, patience) = (written.kind()?, written.patience()?);
        Ok(Self {
            client,
            name,
            given: written.given,
            kind,
            patience,
            busy: written.busy,
            lease: written.lease,
            guard: written.guard,
            lost: written.lost,
        })
    }
}

impl Written {
    /// Reads one option.
    fn read(&mut self, input: ParseStream<'_>, name: &Name) -> syn::Result<()> {
        let word = input.call(Ident::parse_any)?;
        if self.find(&word.to_string()).is_some()
            || self.given.iter().any(|(given, _)| *given == word)
        {
            return Err(Error::new(word.span(), format!("`{word}` is given twice")));
        }
        let text = word.to_string();
        if !matches!(text.as_str(), "read" | "write" | "try") {
            let _: Token![=] = input.parse().map_err(|_| unknown(&word))?;
        }
        match text.as_str() {
            "read" | "write" | "try" => {}
            "permits" => self.permits = Some(input.parse()?),
            "of" => self.of = Some(input.parse()?),
            "wait" => self.wait = Some(duration::wait(&input.parse()?)?),
            "busy" => self.busy = Some(input.parse()?),
            "lease" => self.lease = Some(duration::lease(&input.parse()?)?),
            "guard" => self.guard = Some(input.parse()?),
            "lost" => self.lost = Some(lost(input.call(Ident::parse_any)?)?),
            _ if name.has(&word) => {
                self.given.push((word, input.parse()?));
                return Ok(());
            }
            _ => return Err(unknown(&word)),
        }
        self.words.push(word);
        Ok(())
    }

    fn find(&self, text: &str) -> Option<&Ident> {
        self.words.iter().find(|word| *word == text)
    }

    fn kind(&self) -> syn::Result<Kind> {
        let kinds = ["read", "write", "permits", "of"];
        let mut kinds = kinds.iter().filter_map(|kind| self.find(kind));
        let Some(first) = kinds.next() else {
            return Ok(Kind::Mutex);
        };
        let permits = |word: &Ident| word == "permits" || word == "of";
        if let Some(other) = kinds.find(|other| !(permits(first) && permits(other))) {
            let what = format!("`{first}` and `{other}` are of different kinds of locks: give one");
            return Err(Error::new(other.span(), what));
        }
        if first == "read" {
            return Ok(Kind::Read);
        }
        if first == "write" {
            return Ok(Kind::Write);
        }
        let Some(of) = self.of.clone() else {
            let what = "how many permits are there? write `permits = 2, of = 4`";
            return Err(Error::new(first.span(), what));
        };
        let count = self.permits.clone();
        let count = count.unwrap_or_else(|| syn::parse_quote!(1));
        enough(&count, &of)?;
        Ok(Kind::Permits(Box::new(count), Box::new(of)))
    }

    fn patience(&self) -> syn::Result<Patience> {
        let (wait, tries) = (self.find("wait"), self.find("try"));
        if let (Some(_), Some(tries)) = (wait, tries) {
            let what = "`try` does not wait: give `wait` or `try`";
            return Err(Error::new(tries.span(), what));
        }
        match (wait.or(tries), self.find("busy")) {
            (Some(limit), None) => {
                let what = format!(
                    "with `{limit}` the lock may be busy, which is an answer and not an error: say what the function \
                     returns then, as `busy = Err(Problem::Busy)` or `busy = Ok(None)`"
                );
                Err(Error::new(limit.span(), what))
            }
            (None, Some(busy)) => {
                let what =
                    "a lock that waits without a limit is never busy: give `wait` or `try` too";
                Err(Error::new(busy.span(), what))
            }
            _ if tries.is_some() => Ok(Patience::Try),
            _ => Ok(self.wait.map_or(Patience::Wait, Patience::Within)),
        }
    }
}

fn unknown(word: &Ident) -> Error {
    let what = format!(
        "`{word}` is no option, and the name has no `{{{word}}}`; the options are {OPTIONS}"
    );
    Error::new(word.span(), what)
}

fn lost(word: Ident) -> syn::Result<(Ident, Lost)> {
    let lost = match word.to_string().as_str() {
        "drop" => Lost::Drop,
        "finish" => Lost::Finish,
        _ => {
            let what = "a loss drops the body or lets it finish: `lost = drop` or `lost = finish`";
            return Err(Error::new(word.span(), what));
        }
    };
    Ok((word, lost))
}

/// Refuses numbers that could never be granted, where they are written as numbers.
fn enough(count: &Expr, of: &Expr) -> syn::Result<()> {
    let number = |expr: &Expr| match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse::<u32>().ok(),
            _ => None,
        },
        _ => None,
    };
    let refuse = |what| Err(Error::new_spanned(count, what));
    match (number(count), number(of)) {
        (Some(0), _) => refuse("0 permits hold nothing".to_owned()),
        (Some(count), Some(of)) if count > of => {
            refuse(format!("{count} permits of {of} could never be granted"))
        }
        _ => Ok(()),
    }
}
