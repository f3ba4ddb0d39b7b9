//! The examples stand beside this folder, one file each.
