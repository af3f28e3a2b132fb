//! The names that literals make.

use std::fmt::Display;

use leasehold::{Client, ErrorKind, locked};

use crate::client;

struct Order {
    item: u64,
}

#[locked(locks, "{{stock}}:{shop}/{item:>05}", item = order.item, guard = guard)]
async fn named(locks: &Client, shop: impl Display, order: Order) -> leasehold::Result<String> {
    // The body has its arguments: the name is made before.
    let (_shop, _order) = (shop, order);
    Ok(guard.name().to_string())
}

#[locked(locks, r#"who "{who:?}""#, guard = guard)]
async fn quoted(locks: &Client, who: String) -> leasehold::Result<String> {
    drop(who);
    Ok(guard.name().to_string())
}

#[tokio::test]
async fn arguments_are_parts_and_never_run_together() {
    let locks = client().await;
    let order = || Order { item: 42 };
    let name = named(&locks, "north", order()).await.unwrap();
    assert_eq!(name, "{stock}:north/00042");
    let slash = named(&locks, "a/b:c%", order()).await.unwrap();
    assert_eq!(slash, "{stock}:a%2Fb%3Ac%25/00042");
    let quoted = quoted(&locks, "me".to_owned()).await.unwrap();
    assert_eq!(quoted, "who \"%22me%22\"");
}

#[locked(locks, "{a}:{b}", guard = guard)]
async fn pair(locks: &Client, a: &str, b: &str) -> leasehold::Result<String> {
    Ok(guard.name().to_string())
}

#[tokio::test]
async fn two_different_arguments_never_give_the_same_name() {
    let locks = client().await;
    let values = ["", "a", ":", "a:", ":a", "%3A", "a%3A", "a:a", "%", "é"];
    let mut names = std::collections::BTreeSet::new();
    for a in values {
        for b in values {
            let name = pair(&locks, a, b).await.unwrap();
            assert!(names.insert(name.clone()), "{a:?}, {b:?}: {name}");
        }
    }
}

#[locked(locks, "{text}")]
async fn any(locks: &Client, text: &str) -> leasehold::Result<()> {
    Ok(())
}

#[tokio::test]
async fn a_name_that_is_none_is_the_functions_error() {
    let locks = client().await;
    for text in [String::new(), "x".repeat(513), ":".repeat(171)] {
        let error = any(&locks, &text).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    }
    // A control character is escaped.
    any(&locks, "two\nlines").await.unwrap();
}
