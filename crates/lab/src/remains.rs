//! What a killed server leaves behind outside its folder.

use std::path::Path;
use std::process::{Command, Stdio};

/// Removes what libfaketime shared among the processes of the server whose first had this id, and which has ended.
pub(crate) fn of_clock(id: u32) {
    for part in ["faketime_shm_", "sem.faketime_sem_"] {
        let _ = std::fs::remove_file(Path::new("/dev/shm").join(format!("{part}{id}")));
    }
}

/// Removes the shared memory that tells PostgreSQL whether a data folder is in use: of the server that had `data`, and was killed.
pub(crate) fn of_postgres(data: &Path) {
    if let Some(segment) = segment(data) {
        let mut remove = Command::new("ipcrm");
        let _ = remove.args(["-m", &segment]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Its id, which is the second word of the seventh line. The file is gone once a server has ended in order.
fn segment(data: &Path) -> Option<String> {
    let file = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let id = file.lines().nth(6)?.split_whitespace().nth(1)?;
    id.bytes().all(|byte| byte.is_ascii_digit()).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Postgres, RedisNodes};

    #[test]
    fn a_killed_server_leaves_no_shared_memory() {
        let postgres = Postgres::start().unwrap();
        let id = segment(&postgres.server().folder().join("data")).unwrap();
        let is_there = || {
            let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
            all.lines().any(|line| line.split_whitespace().nth(1) == Some(&*id))
        };
        assert!(is_there());
        drop(postgres);
        assert!(!is_there());
    }

    #[test]
    fn a_killed_server_leaves_no_clock() {
        let nodes = RedisNodes::start_with_clocks(1).unwrap();
        let file = format!("/dev/shm/faketime_shm_{}", nodes.nodes()[0].server().id().unwrap());
        assert!(Path::new(&file).exists());
        drop(nodes);
        assert!(!Path::new(&file).exists());
    }
}
