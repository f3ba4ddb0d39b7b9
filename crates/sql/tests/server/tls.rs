//! TLS to a server that lets nobody in without it.

use super::*;
use fencelock_lab::Certificates;

pub(crate) async fn with_an_authority_of_ones_own<D: Db>(db: &D, right: &Certificates, wrong: &Certificates) {
    let url = |host: &str, mode: &str, authority: Option<&Certificates>| {
        let authority = authority.map(|made| format!("&sslrootcert={}", made.path("ca.pem").display()));
        let url = db.url().replace("127.0.0.1", host);
        format!("{url}?sslmode={mode}{}", authority.unwrap_or_default())
    };
    for (mode, authority) in [("require", None), ("verify-ca", Some(right)), ("verify-full", Some(right))] {
        let client = LockClient::new(D::connect(&url("127.0.0.1", mode, authority)).await.unwrap()).unwrap();
        client.acquire("a").await.unwrap().release().await.unwrap();
    }
    let full = D::connect(&url("localhost", "verify-full", Some(right))).await.unwrap();
    granted(&full, &claim("a", ms(1_000))).await;

    // The certificate is for 127.0.0.1 and localhost; every other way leads to nothing, and says why.
    let plain = D::connect(&url("127.0.0.1", "disable", None)).await.unwrap_err();
    println!("without TLS: {plain}");
    assert!(matches!(plain.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{plain}");
    for (what, url, says) in [
        ("another authority", url("127.0.0.1", "verify-ca", Some(wrong)), "certificate"),
        ("another authority", url("127.0.0.1", "verify-full", Some(wrong)), "certificate"),
        ("the world's authorities", url("127.0.0.1", "verify-full", None), "certificate"),
        ("a file that is not there", url("127.0.0.1", "verify-ca", None) + "&sslrootcert=/none.pem", "/none.pem"),
    ] {
        let e = D::connect(&url).await.unwrap_err();
        println!("{what}: {:?}: {e}", e.kind());
        assert!(format!("{e}").contains(says), "{what}: {e}");
        let kind = if says == "/none.pem" { ErrorKind::InvalidConfig } else { ErrorKind::Unavailable };
        assert_eq!(e.kind(), kind, "{what}: {e}");
    }
}

/// `db` wants a certificate by the authority of `right`.
pub(crate) async fn with_a_certificate_of_ones_own<D: Db>(db: &D, right: &Certificates, wrong: &Certificates) {
    let file = |made: &Certificates, name: &str| made.path(name).display().to_string();
    let trusting = format!("{}?sslmode=verify-full&sslrootcert={}", db.url(), file(right, "ca.pem"));
    let showing = |certificate: &str, key: &str| format!("{trusting}&sslcert={certificate}&sslkey={key}");
    let (certificate, key) = (file(right, "client.crt"), file(right, "client.key"));

    let client = LockClient::new(D::connect(&showing(&certificate, &key)).await.unwrap()).unwrap();
    client.acquire("a").await.unwrap().release().await.unwrap();
    let encrypted = showing(&certificate, &key).replace("verify-full", "require");
    let encrypted = encrypted.replace(&format!("&sslrootcert={}", file(right, "ca.pem")), "");
    granted(&D::connect(&encrypted).await.unwrap(), &claim("b", ms(1_000))).await;

    let empty = right.path("empty");
    std::fs::write(&empty, "").unwrap();
    let locked = right.path("locked");
    std::fs::write(&locked, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n").unwrap();
    let (foreign, foreign_key) = (file(wrong, "client.crt"), file(wrong, "client.key"));
    let broken = right.path("broken");
    std::fs::write(&broken, "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n").unwrap();
    let [empty, locked, broken] = [empty, locked, broken].map(|path| path.display().to_string());
    let plain = format!("{}?sslmode=disable&sslcert={certificate}&sslkey={key}", db.url());
    use ErrorKind::{Denied, InvalidConfig};
    for (what, url, kind, says) in [
        ("none", trusting.clone(), Denied, "let"),
        ("by another authority", showing(&foreign, &foreign_key), Denied, "let"),
        ("another's key", showing(&certificate, &foreign_key), InvalidConfig, "certificate or key"),
        (
            "a key that is not there",
            showing(&certificate, "/none.key"),
            InvalidConfig,
            "`sslkey` cannot be read: /none.key",
        ),
        ("a folder as key", showing(&certificate, "/"), InvalidConfig, "`sslkey` cannot be read: /"),
        ("an empty key", showing(&certificate, &empty), InvalidConfig, "`sslkey` holds no private key"),
        ("a broken key", showing(&certificate, &broken), InvalidConfig, ""),
        ("an encrypted key", showing(&certificate, &locked), InvalidConfig, "`sslkey` is encrypted"),
        (
            "a certificate that is not there",
            showing("/none.crt", &key),
            InvalidConfig,
            "`sslcert` cannot be read: /none.crt",
        ),
        ("a key as certificate", showing(&key, &key), InvalidConfig, "`sslcert` holds no certificate"),
        ("half of it", format!("{trusting}&sslcert={certificate}"), InvalidConfig, "go together"),
        ("without TLS", plain, InvalidConfig, "by TLS alone"),
    ] {
        let e = D::connect(&url).await.unwrap_err();
        println!("{what}: {:?}: {e}", e.kind());
        assert_eq!(e.kind(), kind, "{what}: {e}");
        assert!(e.to_string().contains(says) && !format!("{e:?}").contains("c2VjcmV0"), "{what}: {e}");
    }
    // Whoever is turned away is told so each time, however the server and its alert race.
    for _ in 0..30 {
        let e = D::connect(&showing(&foreign, &foreign_key)).await.unwrap_err();
        assert_eq!(e.kind(), Denied, "{e}");
    }
}
