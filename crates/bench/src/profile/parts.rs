//! What a function is part of, by its name.

/// The part of a client that a moment was spent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Sockets,
    Waking,
    Files,
    Kernel,
    Allocator,
    Library,
    Runtime,
    Engine,
    Core,
    Program,
    Unknown,
}

impl Part {
    pub(super) const ALL: [Self; 11] = [
        Self::Sockets,
        Self::Waking,
        Self::Files,
        Self::Kernel,
        Self::Allocator,
        Self::Library,
        Self::Runtime,
        Self::Engine,
        Self::Core,
        Self::Program,
        Self::Unknown,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sockets => "kernel: sockets",
            Self::Waking => "kernel: waiting and waking",
            Self::Files => "kernel: files",
            Self::Kernel => "kernel: all else",
            Self::Allocator => "the allocator",
            Self::Library => "the client library",
            Self::Runtime => "the runtime",
            Self::Engine => "the engine's crate",
            Self::Core => "core",
            Self::Program => "the program that locks",
            Self::Unknown => "not known",
        }
    }
}

/// How functions of the kernel are marked.
pub(super) const KERNEL: &str = "kernel ";

const WAKING: [&str; 7] = ["futex", "epoll", "eventfd", "poll_select", "nanosleep", "sched_yield", "timerfd"];
const SOCKETS: [&str; 6] = ["sock_", "tcp_", "unix_", "__sys_send", "__sys_recv", "net_rx_action"];
const FILES: [&str; 8] = ["ext4", "vfs_", "fdatasync", "fsync", "fcntl", "do_sys_open", "ksys_", "shmem"];
const ALLOCATOR: [&str; 9] =
    ["malloc", "calloc", "realloc", "free", "cfree", "posix_memalign", "aligned_alloc", "unlink_chunk", "sysmalloc"];

/// The crates that have a part, by how their names begin.
const CRATES: [(&str, Part); 33] = [
    ("fencelock_core", Part::Core),
    ("fencelock_bench", Part::Program),
    ("fencelock", Part::Engine),
    ("tokio_stream", Part::Library),
    ("tokio_util", Part::Library),
    ("tokio", Part::Runtime),
    ("mio", Part::Runtime),
    ("futures", Part::Runtime),
    ("parking_lot", Part::Runtime),
    ("async_io", Part::Runtime),
    ("etcd_client", Part::Library),
    ("tonic", Part::Library),
    ("h2", Part::Library),
    ("hyper", Part::Library),
    ("tower", Part::Library),
    ("http", Part::Library),
    ("prost", Part::Library),
    ("bytes", Part::Library),
    ("indexmap", Part::Library),
    ("slab", Part::Library),
    ("zookeeper_client", Part::Library),
    ("sqlx", Part::Library),
    ("redis", Part::Library),
    ("combine", Part::Library),
    ("async_channel", Part::Library),
    ("asyncs", Part::Library),
    ("event_listener", Part::Library),
    ("flume", Part::Library),
    ("spin", Part::Library),
    ("socket2", Part::Library),
    ("webpki", Part::Library),
    ("rustls", Part::Library),
    ("compact_str", Part::Library),
];

/// The part that a stack, its innermost function first, was in, and the function that says so: what the kernel or the
/// allocator does is theirs, and what else has no part is its caller's.
pub(super) fn part_of(stack: &[String]) -> (Part, &str) {
    let of_kernel = stack.iter().filter_map(|function| function.strip_prefix(KERNEL));
    let has = |names: &[&str]| of_kernel.clone().any(|function| names.iter().any(|name| function.contains(name)));
    let call = of_kernel.clone().find(|function| function.contains("_sys_")).or_else(|| of_kernel.clone().next_back());
    if let Some(call) = call {
        let part = match () {
            () if has(&WAKING) => Part::Waking,
            () if has(&SOCKETS) => Part::Sockets,
            () if has(&FILES) => Part::Files,
            () => Part::Kernel,
        };
        return (part, call);
    }
    if let Some(function) = stack.first().filter(|function| is_allocator(function)) {
        return (Part::Allocator, function);
    }
    let found = stack.iter().find_map(|function| Some((of_function(function)?, function.as_str())));
    found.unwrap_or_else(|| (Part::Unknown, stack.first().map_or("", String::as_str)))
}

fn is_allocator(function: &str) -> bool {
    let function = function.trim_start_matches('_').trim_start_matches("libc_").trim_start_matches("int_");
    ALLOCATOR.iter().any(|name| function.strip_prefix(name).is_some_and(|rest| !rest.contains("::")))
}

/// By the first crate in its name that has a part: `<alloc::vec::Vec<prost::…> as …>::…` is prost's.
fn of_function(function: &str) -> Option<Part> {
    if function.starts_with("sqlite3") {
        return Some(Part::Library);
    }
    let paths = function.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    paths.filter(|path| path.contains("::")).find_map(|path| {
        let first = path.split("::").next().unwrap_or_default();
        CRATES.iter().find(|(name, _)| first.starts_with(name)).map(|(_, part)| *part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(stack: &[&str]) -> Part {
        part_of(&stack.iter().map(|function| (*function).to_owned()).collect::<Vec<_>>()).0
    }

    #[test]
    fn the_innermost_function_with_a_part_counts() {
        assert_eq!(part(&["core::fmt::write", "fencelock_core::claim::x", "tokio::runtime::y"]), Part::Core);
        assert_eq!(part(&["core::ptr::drop_in_place<fencelock_etcd::lease::EtcdLease>"]), Part::Engine);
        assert_eq!(part(&["<alloc::vec::Vec<T> as prost::Message>::encode"]), Part::Library);
        assert_eq!(part(&["_int_malloc", "fencelock_core::x::y"]), Part::Allocator);
        assert_eq!(part(&["__libc_free"]), Part::Allocator);
        assert_eq!(part(&["sqlite3VdbeExec"]), Part::Library);
        assert_eq!(part(&["main", "[unknown]"]), Part::Unknown);
        assert_eq!(part(&[]), Part::Unknown);
    }

    #[test]
    fn what_the_kernel_does_is_told_apart() {
        assert_eq!(part(&["kernel try_to_wake_up", "kernel do_futex", "tokio::x::y"]), Part::Waking);
        assert_eq!(part(&["kernel eventfd_write", "kernel vfs_write", "kernel ksys_write"]), Part::Waking);
        assert_eq!(part(&["kernel tcp_sendmsg", "kernel sock_write_iter", "kernel vfs_write"]), Part::Sockets);
        assert_eq!(part(&["kernel ext4_sync_file", "kernel do_fsync"]), Part::Files);
        assert_eq!(part(&["kernel asm_exc_page_fault", "malloc"]), Part::Kernel);
    }
}
