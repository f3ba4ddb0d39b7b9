//! Processor time and memory, as the kernel counts them.

use std::time::Duration;

/// What this process has used of processors, with all its threads; to the nanosecond.
pub(crate) fn of_this_process() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// What these processes and the ones that they started have used; to 10 ms each.
pub(crate) fn of(processes: &[u32]) -> Duration {
    let ticks = rustix::param::clock_ticks_per_second();
    let used: u64 = stats()
        .filter(|stat| processes.contains(&stat.id) || processes.contains(&stat.parent))
        .map(|stat| stat.ticks)
        .sum();
    Duration::from_secs_f64(used as f64 / ticks as f64)
}

/// The memory that this process has in use, in bytes.
pub(crate) fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

struct Stat {
    id: u32,
    parent: u32,
    ticks: u64,
}

fn stats() -> impl Iterator<Item = Stat> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| {
        let id = process.file_name().to_str()?.parse().ok()?;
        parse(id, &std::fs::read_to_string(process.path().join("stat")).ok()?)
    })
}

/// The fields after the name, which may have spaces and parentheses: state, parent, …, the 12th and 13th are the times.
fn parse(id: u32, line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat { id, parent: u32::try_from(number(1)?).ok()?, ticks: number(11)? + number(12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_field() {
        let line = "7 (a (b) c) S 3 7 7 0 -1 4194560 0 0 0 0 12 30 0 0 20 0 1 0";
        let stat = parse(7, line).unwrap();
        assert_eq!((stat.id, stat.parent, stat.ticks), (7, 3, 42));
        assert!(parse(7, "7 (a) S").is_none());
    }

    #[test]
    fn work_is_counted() {
        let before = of_this_process();
        let mut sum = 0_u64;
        while of_this_process() - before < Duration::from_millis(30) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        assert!(sum != 1 && of(&[std::process::id()]) > Duration::ZERO && resident() > 0);
    }
}
