//! ApiVersions, and requests in versions a broker does not know.

use bytes::Buf;
use kafka_protocol::messages::ApiVersionsRequest;

use super::raw::{Raw, RawBroker, View, text};

fn own(name: &str) -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(text(name))
        .with_client_software_version(text("1.0"))
}

pub async fn a_version_too_high_is_35_in_a_v0_body_and_the_socket_lives(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut node: Raw = view.any().await;
    let correlation = node.send_as(18, 99, &[0]).await;
    let mut frame = node.frame().await.unwrap();
    assert_eq!(frame.get_i32(), correlation);
    assert_eq!(frame.get_i16(), 35);
    assert_eq!(frame.get_i32(), 1);
    assert_eq!((frame.get_i16(), frame.get_i16()), (18, 0));
    let max = frame.get_i16();
    assert!(!frame.has_remaining());
    let answer = node.call(max.min(4), &own("raw")).await;
    assert_eq!(answer.error_code, 0);
    assert!(answer.api_keys.len() > 10);
}

pub async fn an_empty_software_name_is_42(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut node = view.any().await;
    for bad in ["", "-x", "x y"] {
        let answer = node.call(3, &own(bad)).await;
        assert_eq!((answer.error_code, answer.api_keys.len()), (42, 0));
    }
    assert_eq!(node.call(3, &own("raw")).await.error_code, 0);
}

pub async fn another_request_in_an_unknown_version_closes_the_socket(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    for key in [12, 2] {
        let mut node = view.any().await;
        node.send_as(key, 50, &[0; 8]).await;
        assert!(node.frame().await.is_err());
    }
}

pub async fn finalized_features_are_listed_from_v3_on(cluster: &mut dyn RawBroker) {
    let view = View::of(cluster).await;
    let mut node = view.any().await;
    for version in [3, 4] {
        let answer = node.call(version, &own("raw")).await;
        let levels: Vec<(String, i16)> = answer
            .finalized_features
            .iter()
            .map(|feature| (feature.name.to_string(), feature.max_version_level))
            .collect();
        assert!(levels.contains(&("group.version".to_owned(), 1)), "{levels:?}");
        assert!(levels.contains(&("transaction.version".to_owned(), 2)), "{levels:?}");
        let supported: Vec<String> =
            answer.supported_features.iter().map(|feature| feature.name.to_string()).collect();
        assert!(supported.contains(&"metadata.version".to_owned()));
        assert_eq!(supported.contains(&"group.version".to_owned()), version >= 4);
    }
}
