//! Not a test: `cargo xtask prepare` in the clothes of one, so that it is built with the features of all
//! other tests and nothing is compiled twice.
#![allow(clippy::unwrap_used)]

#[tokio::test]
async fn prepare() {
    if std::env::var_os("TESTKIT_PREPARE").is_none() {
        return;
    }
    testkit::kafka::prepare(&[testkit::kafka::DEFAULT_VERSION.to_owned()]).await.unwrap();
}
