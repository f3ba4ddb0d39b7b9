//! Files that are read whole: none without a bound, and none that could keep the reader waiting.

use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// The bytes of the file at `path`, which may have `longest` of them.
///
/// A pipe or a terminal could make the reader wait for ever, so it is refused;
/// `/dev/null` is an empty file.
///
/// # Errors
/// Why there is no such file, in words that do not repeat its name or what is in it.
pub(super) fn read(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "it is a directory"));
    }
    if !kind.is_file() {
        if fs::canonicalize(path)? == Path::new("/dev/null") {
            return Ok(Vec::new());
        }
        return Err(Error::other("it is no regular file but a pipe, a socket or a device"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(longest.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= longest) {
        return Ok(bytes);
    }
    Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {longest} bytes")))
}

/// As [`read`], for text.
///
/// # Errors
/// As for [`read`]; and if it is not UTF-8.
pub(super) fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    let not_text = |_| Error::new(ErrorKind::InvalidData, "it is not UTF-8");
    read(path, longest).and_then(|bytes| String::from_utf8(bytes).map_err(not_text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_for_ever_or_without_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let told = |path: &Path| read_text(path, 8).unwrap_err().to_string();
        assert_eq!(told(directory.path()), "it is a directory");
        fs::write(path("long"), "123456789").unwrap();
        assert_eq!(told(&path("long")), "it has more than 8 bytes");
        fs::write(path("bytes"), [0xff]).unwrap();
        assert_eq!(told(&path("bytes")), "it is not UTF-8");
        fs::write(path("fits"), "12345678").unwrap();
        assert_eq!(read_text(&path("fits"), 8).unwrap(), "12345678");
        assert_eq!(read(&path("none"), 8).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_waited_for() {
        use std::os::unix::net::UnixListener;
        let directory = tempfile::tempdir().unwrap();
        let (pipe, socket) = (directory.path().join("pipe"), directory.path().join("socket"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _listener = UnixListener::bind(&socket).unwrap();
        for path in [&pipe, &socket, Path::new("/dev/zero")] {
            assert!(read(path, 8).unwrap_err().to_string().starts_with("it is no regular file"), "{path:?}");
        }
        assert_eq!(read(Path::new("/dev/null"), 8).unwrap(), [0; 0]);
    }
}
