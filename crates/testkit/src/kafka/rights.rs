//! Who may do what: ACLs, a user who comes and goes, and tokens in any name.
//!
//! Each operation waits until every running node obeys, so that a test does not begin in a half-made world. The
//! preset of `security.rs` has to be in use for any of it to mean something.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest,
};

use super::Kafka;
use super::admin::{check, text, until};
use crate::client::Client;
use crate::failure::{Failure, Result};

/// What a right is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// One topic; `*` is every topic.
    Topic(&'a str),
    /// Every topic whose name begins so.
    Topics(&'a str),
    /// One consumer group.
    Group(&'a str),
    /// One transactional id.
    TransactionalId(&'a str),
    /// The cluster.
    Cluster,
}

impl<'a> Resource<'a> {
    /// Kafka's numbers of the kind and of the way names match, and the name.
    fn parts(self) -> (i8, i8, &'a str) {
        const LITERAL: i8 = 3;
        const PREFIXED: i8 = 4;
        match self {
            Resource::Topic(name) => (2, LITERAL, name),
            Resource::Topics(name) => (2, PREFIXED, name),
            Resource::Group(name) => (3, LITERAL, name),
            Resource::Cluster => (4, LITERAL, "kafka-cluster"),
            Resource::TransactionalId(name) => (5, LITERAL, name),
        }
    }
}

/// What a right allows, by Kafka's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Everything.
    All = 2,
    /// To read.
    Read = 3,
    /// To write.
    Write = 4,
    /// To create.
    Create = 5,
    /// To delete.
    Delete = 6,
    /// To alter.
    Alter = 7,
    /// To know of it.
    Describe = 8,
    /// To write idempotently; the cluster's.
    IdempotentWrite = 12,
}

const ALLOW: i8 = 3;
const ANY: i8 = 1;

impl Kafka {
    /// Lets `user` do something.
    pub async fn allow(&self, user: &str, resource: Resource<'_>, operation: Operation) -> Result<()> {
        let principal = format!("User:{user}");
        let (kind, pattern, name) = resource.parts();
        let right = AclCreation::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_resource_pattern_type(pattern)
            .with_principal(text(&principal))
            .with_host(text("*"))
            .with_operation(operation as i8)
            .with_permission_type(ALLOW);
        let request = CreateAclsRequest::default().with_creations(vec![right]);
        let doing = || format!("allow {user} {operation:?} of {resource:?}");
        let answer = self.any().await?.call(3, &request).await?;
        for result in &answer.results {
            check(result.error_code, result.error_message.as_ref(), doing)?;
        }
        self.until_rights(&principal, &doing(), |rights| {
            rights.contains(&(kind, name.to_owned(), operation as i8))
        })
        .await
    }

    /// Takes every right of `user` away.
    pub async fn forbid(&self, user: &str) -> Result<()> {
        let principal = format!("User:{user}");
        let all = DeleteAclsFilter::default()
            .with_resource_type_filter(ANY)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(ANY)
            .with_host_filter(None)
            .with_principal_filter(Some(text(&principal)))
            .with_operation(ANY)
            .with_permission_type(ANY);
        let request = DeleteAclsRequest::default().with_filters(vec![all]);
        let doing = || format!("forbid {user} everything");
        let answer = self.any().await?.call(3, &request).await?;
        for result in &answer.filter_results {
            check(result.error_code, result.error_message.as_ref(), doing)?;
        }
        self.until_rights(&principal, &doing(), |rights| rights.is_empty()).await
    }

    async fn until_rights(
        &self,
        principal: &str,
        what: &str,
        met: impl Fn(&[(i8, String, i8)]) -> bool,
    ) -> Result<()> {
        let request = DescribeAclsRequest::default()
            .with_resource_type_filter(ANY)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(ANY)
            .with_host_filter(None)
            .with_principal_filter(Some(text(principal)))
            .with_operation(ANY)
            .with_permission_type(ANY);
        for address in self.live() {
            until(what, async || {
                let answer = Client::connect(&address).await?.call(3, &request).await?;
                check(answer.error_code, answer.error_message.as_ref(), || what.to_owned())?;
                let rights: Vec<_> = answer
                    .resources
                    .iter()
                    .flat_map(|found| {
                        let kind = (found.resource_type, found.resource_name.to_string());
                        found.acls.iter().map(move |acl| (kind.0, kind.1.clone(), acl.operation))
                    })
                    .collect();
                if met(&rights) { Ok(()) } else { Err(Failure::new(format!("{address} has {rights:?}"))) }
            })
            .await?;
        }
        Ok(())
    }

    /// Makes or removes carol, who has "carol-secret" and logs in by SCRAM-SHA-512. Brokers obey a moment later.
    pub async fn carol(&self, exists: bool) -> Result<()> {
        let name = text("carol");
        let request = AlterUserScramCredentialsRequest::default();
        let request = if exists {
            let credential = ScramCredentialUpsertion::default()
                .with_name(name)
                .with_mechanism(2)
                .with_iterations(4_096)
                .with_salt(Bytes::from_static(SALT))
                .with_salted_password(Bytes::from_static(&SALTED));
            request.with_upsertions(vec![credential])
        } else {
            request.with_deletions(vec![ScramCredentialDeletion::default().with_name(name).with_mechanism(2)])
        };
        let answer = self.any().await?.call(0, &request).await?;
        let result = answer.results.first().ok_or_else(|| Failure::new("an empty answer"))?;
        check(result.error_code, result.error_message.as_ref(), || "make or remove carol".to_owned())
    }
}

/// An unsecured JWT, as brokers' development set-up takes it, in any name; ends in `seconds`.
pub fn unsecured_token(subject: &str, seconds: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let end = i64::try_from(now).unwrap_or_default() + seconds;
    let claims = format!("{{\"sub\":\"{subject}\",\"iat\":{},\"exp\":{end}}}", end - 3_600);
    format!("{}.{}.", URL_SAFE_NO_PAD.encode("{\"alg\":\"none\"}"), URL_SAFE_NO_PAD.encode(claims))
}

/// PBKDF2 of "carol-secret".
const SALT: &[u8] = b"salt-of-the-test";
const SALTED: [u8; 64] = [
    203, 4, 122, 224, 140, 230, 161, 246, 147, 117, 211, 183, 168, 239, 180, 205, 104, 76, 54, 63, 124, 130,
    5, 100, 223, 47, 92, 116, 143, 251, 77, 193, 105, 101, 21, 83, 172, 179, 181, 122, 122, 5, 52, 140, 73,
    157, 130, 218, 25, 66, 118, 251, 162, 4, 62, 186, 214, 191, 193, 98, 129, 65, 55, 126,
];
