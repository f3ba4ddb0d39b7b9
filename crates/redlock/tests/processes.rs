//! Many processes on many names.

#![allow(missing_docs, reason = "a test")]

fn main() {}
