//! What WOPHI must do, and how often it may write.
