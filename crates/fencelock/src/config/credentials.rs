//! User and password, wherever they were written, on their way into the URL.

use super::layer::{Layer, invalid, placed};
use super::{file, keys};
use fencelock_core::{EngineUrl, Error, ErrorKind, Result, Settings};
use std::path::Path;

/// No password is longer; what is, is another file.
const LONGEST: u64 = 64 * 1024;

/// Moves user and password of the URL into its layer, where they count as parameters.
pub(crate) fn from_url(url: &mut EngineUrl, layer: &mut Layer) -> Result<()> {
    for (key, value) in
        [("username", url.user.take()), ("password", url.password.take().map(|password| password.reveal().to_owned()))]
    {
        let Some(value) = value else { continue };
        if layer.has(key) {
            return Err(invalid(format!("URL: it has a `{key}` twice, before the hosts and as a parameter")));
        }
        layer.set(key, value, "URL");
    }
    Ok(())
}

/// Refuses user and password of file and environment for a URL without hosts.
pub(crate) fn refuse(layers: &[Layer]) -> Result<()> {
    for layer in layers {
        for key in keys::CREDENTIALS {
            if let Some(place) = layer.origins.of(key) {
                let why = "is for an engine that is reached at hosts, and the URL has none";
                return Err(invalid(format!("{place}: `{key}` {why}")));
            }
        }
    }
    Ok(())
}

/// Replaces `password_file` by what the file holds. Only the strongest layer that
/// has a password counts, so only its file is read.
pub(crate) async fn from_files(layers: &mut [Layer]) -> Result<()> {
    let mut found = false;
    for layer in layers.iter_mut().rev() {
        let (password, file) = (layer.has("password"), layer.has("password_file"));
        if !password && !file {
            continue;
        }
        let place = layer.origins.of("password_file").unwrap_or_default().to_owned();
        let path = layer.settings.text("password_file").unwrap_or_default();
        if found {
            layer.settings.secret("password");
        } else if password && file {
            return Err(invalid(format!("{place}: `password_file` and `password` exclude each other")));
        } else if file {
            let reading = tokio::task::spawn_blocking(move || read(Path::new(&path)));
            let stopped = |_| Error::new(ErrorKind::Unavailable, "the runtime ended");
            let read = reading.await.map_err(stopped)?.map_err(|e| placed(&place, e))?;
            layer.set("password", read, &place);
        }
        found = true;
    }
    Ok(())
}

/// Puts user and password where engines look for them.
pub(crate) fn into_url(settings: &mut Settings, url: &mut EngineUrl) {
    url.user = settings.text("username");
    url.password = settings.secret("password");
}

/// A password without the line end after it. Errors name the file, never what is in it.
fn read(path: &Path) -> Result<String> {
    let shown = shown(path);
    let text = file::read_text(path, LONGEST);
    let text = text.map_err(|e| invalid(format!("`password_file`: cannot read {shown}: {e}")))?;
    let line = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() {
        return Err(invalid(format!("`password_file`: {shown} is empty")));
    }
    Ok(line.to_owned())
}

/// The path, but not what may be a password that somebody took `password_file` for `password` with.
fn shown(path: &Path) -> String {
    if path.is_absolute() || path.starts_with(".") || path.starts_with("..") {
        format!("`{}`", path.display())
    } else {
        "the file (its name is not shown, for it may be the password itself; begin a path with `/` or `./`)".to_owned()
    }
}
