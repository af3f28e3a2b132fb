//! The function with its body under the lock.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{Block, Error, Expr, ExprAsync, ItemFn, ReturnType, Stmt, Type, parse_quote};

use crate::options::{Kind, Lost, Options, Patience};

/// The function that the attribute is on, with its body under the lock.
pub(crate) fn expand(options: &Options, mut function: ItemFn) -> syn::Result<TokenStream> {
    if let Some(constant) = &function.sig.constness {
        let what = "a `const fn` cannot take a lock";
        return Err(Error::new_spanned(constant, what));
    }
    if function.sig.asyncness.is_some() {
        let returned = returned(&function)?;
        let body = under(options, &returned, &function.block, Calls::Async);
        *function.block = parse_quote!({ #body });
    } else if let Some(boxed) = boxed_future(&mut function.block) {
        // `#[async_trait]` was here: its block says itself what it returns.
        let body = under(options, &parse_quote!(_), &boxed.block, Calls::Async);
        boxed.block = parse_quote!({ #body });
    } else {
        let returned = returned(&function)?;
        if let Some((word, Lost::Drop)) = &options.lost {
            let what = "nothing can end the body of a function that blocks: its body always finishes; make the function \
                        `async`, or look at the guard in the body (`guard = name`)";
            return Err(Error::new(word.span(), what));
        }
        let body = under(options, &returned, &function.block, Calls::Blocking);
        *function.block = parse_quote!({ #body });
    }
    Ok(function.into_token_stream())
}

/// The type that the function returns, with `_` where only the compiler can name it.
fn returned(function: &ItemFn) -> syn::Result<Type> {
    let what = "a locked function returns a `Result` whose error is `From<leasehold::Error>`: the lock may be lost, or its \
                engine out of reach";
    match &function.sig.output {
        ReturnType::Default => Err(Error::new_spanned(&function.sig.ident, what)),
        ReturnType::Type(_, returned) => match &**returned {
            Type::Never(_) | Type::Tuple(_) => Err(Error::new_spanned(returned, what)),
            Type::ImplTrait(_) if function.sig.asyncness.is_none() => {
                let what = "a function that returns a future would give the lock back before the future has run: write \
                            `async fn`";
                Err(Error::new_spanned(returned, what))
            }
            _ => {
                let mut returned = (**returned).clone();
                Unnamed.visit_type_mut(&mut returned);
                Ok(returned)
            }
        },
    }
}

/// Writes `_` for each `impl Trait`.
struct Unnamed;

impl VisitMut for Unnamed {
    fn visit_type_mut(&mut self, found: &mut Type) {
        match found {
            Type::ImplTrait(_) => *found = parse_quote!(_),
            _ => syn::visit_mut::visit_type_mut(self, found),
        }
    }
}

/// The future of a body that is `Box::pin(async move { … })`.
fn boxed_future(block: &mut Block) -> Option<&mut ExprAsync> {
    let Some(Stmt::Expr(Expr::Call(call), None)) = block.stmts.last_mut() else {
        return None;
    };
    let Expr::Path(called) = &*call.func else {
        return None;
    };
    let mut path = called.path.segments.iter().rev();
    let is_pin = path.next().is_some_and(|last| last.ident == "pin");
    let is_box = path.next().is_some_and(|before| before.ident == "Box");
    match call.args.first_mut() {
        Some(Expr::Async(future)) if is_pin && is_box => Some(future),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    Async,
    Blocking,
}

/// The statements that take the lock, run the body and give the lock back.
fn under(options: &Options, returned: &Type, body: &Block, calls: Calls) -> TokenStream {
    let (here, at) = (Span::mixed_site(), returned_at(returned));
    let lock = lock(options, calls);
    let guard = guard(options, at, calls);
    let bind = options
        .guard
        .as_ref()
        .map(|name| quote_spanned!(here=> let #name = &guard;));
    let (done, end) = match calls {
        Calls::Async => {
            // Says what the body returns: the compiler needs to know for its `?`.
            let future = quote_spanned!(here=> async move {
                if let ::core::option::Option::Some(never) = ::core::option::Option::None::<#returned> {
                    return never;
                }
                #body
            });
            let done = match options.lost {
                Some((_, Lost::Finish)) => quote_spanned!(here=> (#future).await),
                _ => quote_spanned!(at=> ::leasehold::__locked::race(&guard, #future).await),
            };
            let end =
                quote_spanned!(at=> ::leasehold::__locked::end(done, held, guard.release()).await);
            (done, end)
        }
        Calls::Blocking => (
            quote_spanned!(here=> ::leasehold::__locked::work(move || -> #returned #body)),
            quote_spanned!(at=> ::leasehold::__locked::end_blocking(done, held, move || guard.release())),
        ),
    };
    quote_spanned! {here=>
        let lock = #lock;
        let guard = #guard;
        #bind
        let done = #done;
        let held = guard.check();
        #end
    }
}

/// The place of the returned type, for errors about its own error.
fn returned_at(returned: &Type) -> Span {
    match returned {
        Type::Infer(_) => Span::mixed_site(),
        _ => Span::mixed_site().located_at(returned.span()),
    }
}

/// An expression that makes the handle. The name is made here, before the body can move what it is made of.
fn lock(options: &Options, calls: Calls) -> TokenStream {
    let here = Span::mixed_site();
    let client = &options.client;
    let name = options.name.expression(&options.given);
    let made = match &options.kind {
        Kind::Mutex => quote_spanned!(here=> client.mutex(#name)),
        Kind::Read | Kind::Write => quote_spanned!(here=> client.rwlock(#name)),
        Kind::Permits(_, of) => quote_spanned!(here=> client.semaphore(#name, #of)),
    };
    let lease = options
        .lease
        .map(|millis| quote_spanned!(here=> .lease(::core::time::Duration::from_millis(#millis))));
    let kind = match calls {
        Calls::Async => quote!(::leasehold::Client),
        Calls::Blocking => quote!(::leasehold::blocking::Client),
    };
    let at = here.located_at(client.span());
    let borrowed = quote_spanned!(at=> &#client);
    quote_spanned!(here=> {
        let client: &#kind = #borrowed;
        #made #lease
    })
}

/// An expression that waits for the guard, or returns from the function.
fn guard(options: &Options, at: Span, calls: Calls) -> TokenStream {
    let here = Span::mixed_site();
    let [wait, within, tries] = match &options.kind {
        Kind::Mutex => ["lock", "lock_within", "try_lock"],
        Kind::Read => ["read", "read_within", "try_read"],
        Kind::Write => ["write", "write_within", "try_write"],
        Kind::Permits(..) => ["acquire_many", "acquire_many_within", "try_acquire_many"],
    };
    let count = match &options.kind {
        Kind::Permits(count, _) => Some(quote_spanned!(here=> #count,)),
        _ => None,
    };
    let call = |call: &str| Ident::new(call, here);
    let asked = match options.patience {
        Patience::Wait => {
            let wait = call(wait);
            quote_spanned!(here=> lock.#wait(#count))
        }
        Patience::Within(millis) => {
            let within = call(within);
            quote_spanned!(here=> lock.#within(#count ::core::time::Duration::from_millis(#millis)))
        }
        Patience::Try => {
            let tries = call(tries);
            quote_spanned!(here=> lock.#tries(#count))
        }
    };
    let awaited = (calls == Calls::Async).then(|| quote_spanned!(here=> .await));
    let failed = quote_spanned!(at=> return ::leasehold::__locked::Outcome::failed(error));
    let got = match &options.busy {
        None => quote_spanned!(here=> ::core::result::Result::Ok(guard) => guard,),
        Some(busy) => quote_spanned! {here=>
            ::core::result::Result::Ok(::core::option::Option::Some(guard)) => guard,
            ::core::result::Result::Ok(::core::option::Option::None) => return #busy,
        },
    };
    quote_spanned! {here=> match #asked #awaited {
        #got
        ::core::result::Result::Err(error) => #failed,
    }}
}
