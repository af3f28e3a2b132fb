//! Soon.
pub(crate) fn open(
    _: &crate::engine::Url,
) -> crate::Result<std::sync::Arc<dyn crate::engine::Engine>> {
    Err(crate::Error::new(
        crate::ErrorKind::Unsupported,
        crate::Step::Connect,
        "not yet",
    ))
}
