//! Where a client's processor time goes, by function: one contender at a time, alone in its process, under `perf`.

mod parts;
mod record;

use crate::contender::{Outside, Shape, own};
use crate::engine::Engine;
use crate::failure::Result;
use crate::server::Server;
use parts::Part;
use std::collections::BTreeMap;
use std::time::Duration;

/// Long enough that nothing is done for the first time while it is recorded.
const WARM: Duration = Duration::from_millis(500);

/// Microseconds of the client's processor for each pair of acquire and release.
type Costs = BTreeMap<Part, f64>;

/// Prints a table for each engine: floor and ours, one task and 64.
pub(crate) async fn run(engines: &[Engine], seconds: u64, top: usize) -> Result<()> {
    let length = Duration::from_secs(seconds);
    for engine in engines {
        let server = Server::start(*engine).await?;
        let mut columns = Vec::new();
        for tasks in [1, 64] {
            for who in ["floor", "ours"] {
                let recorded = one(&server, who, Shape { tasks, shared: false }, length).await?;
                if top > 0 {
                    println!("{engine}, {who}, tasks: {tasks}\n{}", recorded.heaviest(top));
                }
                columns.push((who, tasks, recorded.costs()));
            }
        }
        println!("{}", table(*engine, &columns));
    }
    Ok(())
}

async fn one(server: &Server, who: &str, shape: Shape, length: Duration) -> Result<record::Recorded> {
    let place = server.place();
    let mut client = Outside::start(&own(who, &place)?, &place.url).await?;
    client.round(shape, WARM).await?;
    // To record costs time itself: what a pair costs is told without, and only divided up by what is recorded.
    let round = client.round(shape, length).await?;
    let pairs = round.latencies.total();
    if pairs == 0 {
        return Err("nothing was locked".into());
    }
    let recording = record::Recording::of(client.id().ok_or("it has ended")?)?;
    client.round(shape, length).await?;
    recording.end(round.client.as_secs_f64() * 1e6 / pairs as f64)
}

fn table(engine: Engine, columns: &[(&str, usize, Costs)]) -> String {
    let heads: Vec<_> = columns.iter().map(|(who, tasks, _)| format!("{who}, {tasks}")).collect();
    let mut text =
        format!("| {engine}: µs a pair, tasks | {} |\n|---|{}\n", heads.join(" | "), "--:|".repeat(heads.len()));
    let mut row = |what: &str, cost: &dyn Fn(&Costs) -> f64| {
        let costs: Vec<_> = columns.iter().map(|(_, _, costs)| format!("{:.1}", cost(costs))).collect();
        text.push_str(&format!("| {what} | {} |\n", costs.join(" | ")));
    };
    for part in Part::ALL {
        row(part.name(), &|costs| costs.get(&part).copied().unwrap_or(0.0));
    }
    row("all", &|costs| costs.values().sum());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_took_no_time_has_its_line() {
        let costs = Costs::from([(Part::Core, 1.25), (Part::Allocator, 0.5)]);
        let text = table(Engine::Redis, &[("ours", 1, costs)]);
        assert!(text.contains("| core | 1.2 |") || text.contains("| core | 1.3 |"), "{text}");
        assert!(text.contains("| all | 1.8 |") && text.contains("| the engine's crate | 0.0 |"), "{text}");
    }
}
