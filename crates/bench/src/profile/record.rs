//! A recording by `perf` of one process, and what its stacks say.

use super::Costs;
use super::parts::{KERNEL, Part, part_of};
use crate::failure::Result;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Samples a second: a prime, in step with nothing.
const RATE: &str = "1999";

pub(super) struct Recording {
    folder: TempDir,
    perf: Child,
}

impl Recording {
    /// Begins to record the process with all its threads.
    pub(super) fn of(process: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("perf.data");
        let perf = Command::new("perf")
            .args(["record", "--quiet", "--call-graph", "fp", "--freq", RATE])
            .args(["--pid", &process.to_string(), "--output"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("perf, of the package linux-perf: {e}"))?;
        let mut recording = Self { folder, perf };
        recording.until_begun(&file)?;
        Ok(recording)
    }

    fn until_begun(&mut self, file: &PathBuf) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        while std::fs::metadata(file).map_or(0, |file| file.len()) == 0 {
            if let Some(status) = self.perf.try_wait()? {
                return Err(format!("perf ended with {status}: may it record here?").into());
            }
            if Instant::now() > end {
                return Err("perf did not begin".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // It writes the head of its file before it begins.
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    /// Ends it; `us` is what a pair cost in all.
    pub(super) fn end(mut self, us: f64) -> Result<Recorded> {
        if let Some(process) = i32::try_from(self.perf.id()).ok().and_then(Pid::from_raw) {
            kill_process(process, Signal::INT)?;
        }
        self.perf.wait()?;
        let output = Command::new("perf")
            .args(["script", "--no-inline", "--fields", "comm,period,ip,sym", "--input"])
            .arg(self.folder.path().join("perf.data"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        Ok(Recorded { us, stacks: stacks(&String::from_utf8_lossy(&output.stdout)) })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// What was recorded of a contender.
pub(super) struct Recorded {
    /// Microseconds of processor time for each pair.
    us: f64,
    /// The functions that were under way, the innermost first, and for how long.
    stacks: Vec<(Vec<String>, u64)>,
}

impl Recorded {
    fn whole(&self) -> f64 {
        self.stacks.iter().map(|(_, period)| *period as f64).sum::<f64>().max(1.0)
    }

    pub(super) fn costs(&self) -> Costs {
        let mut costs = Costs::new();
        let each = self.us / self.whole();
        for (stack, period) in &self.stacks {
            *costs.entry(part_of(stack).0).or_default() += *period as f64 * each;
        }
        costs
    }

    /// The functions that most time of each part was spent in.
    pub(super) fn heaviest(&self, most: usize) -> String {
        let mut costs: BTreeMap<(Part, &str), f64> = BTreeMap::new();
        let each = self.us / self.whole();
        for (stack, period) in &self.stacks {
            *costs.entry(part_of(stack)).or_default() += *period as f64 * each;
        }
        let mut all: Vec<_> = costs.into_iter().collect();
        all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let mut text = String::new();
        for part in Part::ALL {
            for ((_, function), us) in all.iter().filter(|((of, _), _)| *of == part).take(most) {
                text.push_str(&format!("{us:8.2}  {}: {function}\n", part.name()));
            }
        }
        text
    }
}

/// What `perf script` prints: a line for each sample, its functions below it, and an empty line.
fn stacks(text: &str) -> Vec<(Vec<String>, u64)> {
    let mut all = Vec::new();
    for sample in text.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let period = lines.next().and_then(|head| head.split_ascii_whitespace().next_back());
        let Some(period) = period.and_then(|period| period.trim_end_matches(':').parse().ok()) else { continue };
        let functions = lines.filter_map(|line| {
            let (address, function) = line.trim().split_once(' ')?;
            // The upper half of all addresses is the kernel's.
            let of_kernel = address.len() == 16 && address.starts_with('f');
            Some(format!("{}{}", if of_kernel { KERNEL } else { "" }, function.trim()))
        });
        all.push((functions.collect(), period));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read() {
        let text = "tokio-rt-worker    1000 \n\t  55aa malloc\n\t  55bb fencelock_core::claim::Claim::mint\n\n\
                    tokio-rt-worker    3000 \n\t  55cc h2::proto::poll\n\n";
        let recorded = Recorded { us: 8.0, stacks: stacks(text) };
        assert_eq!(recorded.stacks.len(), 2);
        assert_eq!(recorded.costs(), Costs::from([(Part::Allocator, 2.0), (Part::Library, 6.0)]));
        assert!(recorded.heaviest(1).contains("2.00  the allocator: "), "{}", recorded.heaviest(1));
    }
}
