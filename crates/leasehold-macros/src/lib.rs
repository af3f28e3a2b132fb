//! The attribute [`macro@locked`] of the crate `leasehold`, which has it with the feature `macros`.

mod duration;
mod expand;
mod name;
mod options;

use proc_macro::TokenStream;
use syn::{Error, ItemFn};

use crate::options::Options;

#[doc = include_str!("../docs.md")]
#[proc_macro_attribute]
pub fn locked(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let original = item.clone();
    let expanded = syn::parse(arguments).and_then(|options: Options| {
        let function: ItemFn = syn::parse(item).map_err(|error| {
            let what = format!("`#[locked]` is for a function or method with a body ({error})");
            Error::new(error.span(), what)
        })?;
        expand::expand(&options, function)
    });
    match expanded {
        Ok(function) => function.into(),
        Err(error) => {
            // The function stays, so that the compiler does not say of its callers that there is none.
            let mut both = TokenStream::from(error.into_compile_error());
            both.extend(original);
            both
        }
    }
}
