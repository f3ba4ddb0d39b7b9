//! Many shells, one lock.

use crate::support::{Place, start};
use std::time::Instant;

#[test]
fn four_hundred_increments_are_four_hundred() {
    let place = Place::new();
    std::fs::write(place.path("f"), "0\n").unwrap();
    let begin = Instant::now();
    let script = "for i in $(seq 50); do \
        \"$BINARY\" run --url \"$URL\" --wait 120s counter -- sh -c 'read n < f; echo $((n+1)) > f' || exit 1; done";
    let mut shells: Vec<_> = (0..8)
        .map(|_| {
            let mut shell = place.program("sh");
            shell.args(["-c", script]).env("URL", place.url()).env_remove("FENCELOCK_URL");
            start(shell)
        })
        .collect();
    for shell in &mut shells {
        // Not `code()`, since all of them together take longer than one thing may.
        assert_eq!(shell.child.wait().unwrap().code(), Some(0));
    }
    println!("8 shells, 50 increments each: {:?}", begin.elapsed());
    assert_eq!(place.read("f"), "400\n");
}
