//! What is made of the rows.

mod table;

pub(crate) use table::{line, table};
