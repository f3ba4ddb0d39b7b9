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
