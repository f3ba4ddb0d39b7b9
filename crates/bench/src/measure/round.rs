//! One round of one contender, and all of them.

use super::Histogram;
use super::stats::{evenness, median, ratio};
use crate::failure::Result;
use crate::server::Server;
use std::time::Duration;

/// What a contender did in one round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    pub(crate) elapsed: Duration,
    pub(crate) latencies: Histogram,
    /// Processor time of the client.
    pub(crate) client: Duration,
    /// Processor time of the server.
    pub(crate) server: Duration,
    /// Commands that the server was sent, where it counts them.
    pub(crate) commands: Option<f64>,
    /// How many operations each task had.
    pub(crate) shares: Vec<u64>,
}

impl Round {
    /// Takes down how many commands the server has been sent since it had been sent `before`.
    pub(crate) async fn count(&mut self, before: Option<f64>, server: &Server, plain: bool) -> Result<()> {
        // What the question itself costs is the same each time: asked twice, it can be taken off.
        let (after, again) = (server.commands(plain).await?, server.commands(plain).await?);
        let both = after.zip(again).zip(before);
        self.commands = both.map(|((after, again), before)| (after - before - (again - after)).max(0.0));
        Ok(())
    }

    fn operations(&self) -> f64 {
        self.latencies.total() as f64
    }

    fn rate(&self) -> f64 {
        self.operations() / self.elapsed.as_secs_f64()
    }
}

/// All rounds of one contender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<Round>);

impl Rounds {
    pub(crate) fn push(&mut self, round: Round) {
        self.0.push(round);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Operations a second, the median of the rounds.
    pub(crate) fn rate(&self) -> Option<f64> {
        median(self.rates())
    }

    /// This one's rate, as a part of the other's.
    pub(crate) fn ratio_to(&self, other: &Self) -> Option<f64> {
        ratio(&self.rates(), &other.rates())
    }

    fn rates(&self) -> Vec<f64> {
        self.0.iter().map(Round::rate).collect()
    }

    /// Of the latencies of all rounds.
    pub(crate) fn quantile_us(&self, part: f64) -> Option<f64> {
        let mut all = Histogram::default();
        self.0.iter().for_each(|round| all.merge(&round.latencies));
        all.quantile_us(part)
    }

    /// Microseconds of the client's processor time for each operation.
    pub(crate) fn client_us(&self) -> Option<f64> {
        self.of_each(|round| Some(round.client.as_secs_f64() * 1e6))
    }

    /// Microseconds of the server's processor time for each operation.
    pub(crate) fn server_us(&self) -> Option<f64> {
        self.of_each(|round| Some(round.server.as_secs_f64() * 1e6))
    }

    pub(crate) fn commands(&self) -> Option<f64> {
        self.of_each(|round| round.commands)
    }

    /// The kernel counts in steps of 10 ms, so the sums are compared and not the rounds.
    fn of_each(&self, what: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        let sum: f64 = self.0.iter().map(what).sum::<Option<f64>>()?;
        let operations: f64 = self.0.iter().map(Round::operations).sum();
        (operations > 0.0).then(|| sum / operations)
    }

    pub(crate) fn evenness(&self) -> Option<f64> {
        median(self.0.iter().filter_map(|round| evenness(&round.shares)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(operations: u64, client: u64) -> Round {
        let mut latencies = Histogram::default();
        (0..operations).for_each(|_| latencies.add(Duration::from_micros(50)));
        let (elapsed, client) = (Duration::from_secs(1), Duration::from_micros(client));
        Round { elapsed, latencies, client, commands: Some(2.0 * operations as f64), ..Round::default() }
    }

    #[test]
    fn rounds_are_summed_up() {
        let (mut ours, mut floor) = (Rounds::default(), Rounds::default());
        for _ in 0..3 {
            ours.push(round(90, 900));
            floor.push(round(100, 500));
        }
        assert_eq!((ours.rate(), ours.ratio_to(&floor)), (Some(90.0), Some(0.9)));
        assert!((ours.client_us().unwrap() - 10.0).abs() < 1e-9);
        assert!((ours.commands().unwrap() - 2.0).abs() < 1e-9);
        assert!((ours.quantile_us(0.99).unwrap() - 50.0).abs() < 1.0);
        assert_eq!((Rounds::default().rate(), Rounds::default().client_us()), (None, None));
    }
}
