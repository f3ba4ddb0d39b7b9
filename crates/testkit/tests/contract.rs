//! The suite on the small engine of its own, which is right.

mod own;

fn main() -> std::process::ExitCode {
    fencelock_testkit::main::<own::Own<0>>()
}
