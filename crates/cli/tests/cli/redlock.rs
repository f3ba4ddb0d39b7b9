//! `fencelock redlock …` on real nodes.

use crate::support::{Place, Said, output};
use fencelock_lab::RedisNodes;

fn said(url: &str, words: &str) -> Said {
    let place = Place::new();
    let mut command = place.fencelock(words.split(' '));
    command.env("FENCELOCK_URL", url);
    output(command)
}

#[test]
fn a_set_is_made_once_looked_at_and_a_node_brought_back() {
    let mut nodes = RedisNodes::start(3).unwrap();
    let url = format!("redlock://{}", nodes.addresses());
    let refused = said(&url, "list");
    assert_eq!(refused.code, Some(79), "{}", refused.stderr);
    assert!(refused.stderr.contains("fencelock redlock init"), "{}", refused.stderr);
    let empty = said(&url, "redlock status");
    assert_eq!(empty.code, Some(69));
    assert!(empty.stdout.contains("0 of 3 nodes vote") && empty.stdout.contains("redlock init"), "{}", empty.stdout);

    let made = said(&url, "redlock init --token-base 1000");
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), "initialised\n"), "{}", made.stderr);
    assert_eq!(said(&url, "redlock init").stdout, "initialised already\n");
    let token = said(&url, "run name -- sh -c echo${IFS}$FENCELOCK_TOKEN");
    assert_eq!((token.code, token.stdout.as_str()), (Some(0), "1001\n"), "{}", token.stderr);

    let node = nodes.nodes()[2].address().to_string();
    nodes.nodes_mut()[2].server_mut().kill();
    nodes.nodes_mut()[2].restart().unwrap();
    let one_lost = said(&url, "redlock status --json");
    assert_eq!(one_lost.code, Some(0));
    assert!(one_lost.stdout.contains("\"voting\": 2") && one_lost.stdout.contains("reseed"), "{}", one_lost.stdout);
    let again = said(&url, "redlock init");
    assert!(again.code == Some(79) && again.stderr.contains("could repeat tokens"), "{}", again.stderr);
    let hasty = said(&url, &format!("redlock reseed {node} --after-delay 0s"));
    assert!(hasty.code == Some(78) && hasty.stderr.contains("4s"), "{}", hasty.stderr);
    let back = said(&url, &format!("redlock reseed {node} --after-delay 4s"));
    assert_eq!((back.code, back.stdout), (Some(0), format!("{node}: votes again\n")), "{}", back.stderr);
    let nothing = said(&url, &format!("redlock reseed {node} --after-delay 4s"));
    assert_eq!(nothing.stdout, format!("{node}: nothing is missing\n"));
    assert!(said(&url, "redlock status").stdout.contains("3 of 3 nodes vote"));
}

#[test]
fn another_engine_has_no_nodes() {
    let wrong = said("memory:", "redlock status");
    assert!(wrong.code == Some(78) && wrong.stderr.contains("redlock://"), "{}", wrong.stderr);
}
