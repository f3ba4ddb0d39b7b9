//! Connecting with time-outs that are short on purpose.

use std::fmt::Debug;

const TRIES: u32 = 4;

/// What `connect` comes to, at the last of four tries: a machine that stands still for a second is no fault of the server's, and of
/// no interest where a client is only to be had.
///
/// # Errors
/// The last try's.
pub async fn connected<T, E: Debug, F: Future<Output = Result<T, E>>>(mut connect: impl FnMut() -> F) -> Result<T, E> {
    for _ in 1..TRIES {
        if let Ok(connected) = connect().await {
            return Ok(connected);
        }
    }
    connect().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn done<T>(ready: impl Future<Output = T>) -> T {
        match pin!(ready).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("nothing was to be waited for"),
        }
    }

    #[test]
    fn the_last_try_decides() {
        let mut asked = 0;
        let mut until = |enough: u32| {
            asked += 1;
            std::future::ready(if asked >= enough { Ok(asked) } else { Err(asked) })
        };
        assert_eq!(done(connected(|| until(3))), Ok(3));
        assert_eq!(done(connected(|| until(99))), Err(7));
    }
}
