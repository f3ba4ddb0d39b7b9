//! Which file system a file lies on.
//!
//! SQLite's write-ahead log needs shared memory between its readers and writers,
//! and so one kernel (<https://www.sqlite.org/wal.html>): on a network file
//! system it is neither supported nor safe. The numbers are those of `statfs(2)`.

use std::path::Path;

/// What is known of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// On a device of this host.
    Local(&'static str),
    /// In this host's memory.
    Memory(&'static str),
    /// Shared with other hosts.
    Network(&'static str),
    /// Whatever stands behind it is hidden.
    Hidden(&'static str),
    /// Nothing.
    Unknown,
}

impl FileSystem {
    /// The file system of `path`. Looks by path: a descriptor opened and closed
    /// here would drop SQLite's own locks on the file, as POSIX has it.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(path: &Path) -> Self {
        // The width and sign of the field differ between machines.
        #[allow(clippy::useless_conversion)]
        rustix::fs::statfs(path)
            .ok()
            .and_then(|found| i64::try_from(found.f_type).ok())
            .and_then(|magic| u32::try_from(magic & 0xffff_ffff).ok())
            .map_or(Self::Unknown, Self::of_magic)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of(_path: &Path) -> Self {
        Self::Unknown
    }

    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    const fn of_magic(magic: u32) -> Self {
        match magic {
            0xEF53 => Self::Local("ext"),
            0x5846_5342 => Self::Local("xfs"),
            0x9123_683E => Self::Local("btrfs"),
            0x2FC1_2FC1 => Self::Local("zfs"),
            0xF2F5_2010 => Self::Local("f2fs"),
            0xCA45_1A4E => Self::Local("bcachefs"),
            0x794C_7630 => Self::Local("overlay"),
            0x3153_464A => Self::Local("jfs"),
            0x5265_4973 => Self::Local("reiserfs"),
            0x3434 => Self::Local("nilfs"),
            0x2405_1905 => Self::Local("ubifs"),
            0x2011_BAB0 => Self::Local("exfat"),
            0x4D44 => Self::Local("vfat"),
            0x7366_746E => Self::Local("ntfs3"),
            0xF15F => Self::Local("ecryptfs"),
            0x0102_1994 => Self::Memory("tmpfs"),
            0x8584_58F6 => Self::Memory("ramfs"),
            0x6969 => Self::Network("nfs"),
            0x517B => Self::Network("smb"),
            0xFF53_4D42 => Self::Network("cifs"),
            0xFE53_4D42 => Self::Network("smb2"),
            0x0102_1997 => Self::Network("9p"),
            0x5346_414F | 0x6B41_4653 => Self::Network("afs"),
            0x7375_7245 => Self::Network("coda"),
            0x00C3_6400 => Self::Network("ceph"),
            0x0BD0_0BD0 => Self::Network("lustre"),
            0x0116_1970 => Self::Network("gfs2"),
            0x7461_636F => Self::Network("ocfs2"),
            0x4750_4653 => Self::Network("gpfs"),
            0xAAD7_AAEA => Self::Network("panfs"),
            0x786F_4256 => Self::Network("vboxsf"),
            0xBACB_ACBC => Self::Network("vmhgfs"),
            0x6573_5546 => Self::Hidden("fuse"),
            _ => Self::Unknown,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Local(name) | Self::Memory(name) | Self::Network(name) | Self::Hidden(name) => name,
            Self::Unknown => "unknown file system",
        }
    }
}

/// How `path` may be one of several names of a file, if it is: the log lies
/// beside each name, so whoever comes by another has another log, and locks alone.
#[cfg(target_os = "linux")]
pub(crate) fn other_names(path: &Path) -> Option<&'static str> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::NLINK).ok()?;
    if found.stx_nlink > 1 {
        Some("the file has several hard links")
    } else if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        Some("the file is mounted by itself, without its directory")
    } else {
        None
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn other_names(_path: &Path) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_told_from_disks() {
        for magic in [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997, 0x5346_414F, 0x00C3_6400] {
            assert!(matches!(FileSystem::of_magic(magic), FileSystem::Network(_)), "{magic:x}");
        }
        for magic in [0xEF53, 0x5846_5342, 0x9123_683E, 0x794C_7630] {
            assert!(matches!(FileSystem::of_magic(magic), FileSystem::Local(_)), "{magic:x}");
        }
        assert_eq!(FileSystem::of_magic(0x6573_5546), FileSystem::Hidden("fuse"));
        assert_eq!(FileSystem::of_magic(0x1234_5678), FileSystem::Unknown);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn proc_is_not_taken_for_a_disk() {
        assert_eq!(FileSystem::of(Path::new("/proc/self")), FileSystem::Unknown);
        assert_eq!(FileSystem::of(Path::new("/no/such/place")), FileSystem::Unknown);
    }
}
