//! Spans for those who watch a program: with the feature `tracing`, and nothing without it.

/// Opens a span that lasts until the end of the block: its level, its name, and the path of the
/// database.
macro_rules! spanned {
    ($level:ident, $name:literal, $path:expr) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::span!(
            target: "everhash",
            spanned!($level),
            $name,
            database = %$path.display()
        )
        .entered();
    };
    (info) => {
        tracing::Level::INFO
    };
    (debug) => {
        tracing::Level::DEBUG
    };
    (trace) => {
        tracing::Level::TRACE
    };
}
