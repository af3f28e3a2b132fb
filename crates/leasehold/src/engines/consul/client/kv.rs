//! Keys and values: what is stored, and the operations of a transaction.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::trouble::{Answer, Trouble, refusal};
use super::{Ask, Http};

/// One key, and what is stored of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines::consul) struct Entry {
    pub(in crate::engines::consul) key: String,
    pub(in crate::engines::consul) value: Vec<u8>,
    pub(in crate::engines::consul) flags: u64,
    /// The session that has it; empty if none has.
    pub(in crate::engines::consul) session: String,
    /// The server's number of the change that made it.
    pub(in crate::engines::consul) created: u64,
    /// The server's number of its last change.
    pub(in crate::engines::consul) modified: u64,
}

/// A key as the API writes it. What is read into it is about as large as its text: a tree of JSON values can be thirty
/// times as large, which is the server's choice.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Written {
    key: String,
    value: Option<String>,
    flags: u64,
    session: Option<String>,
    create_index: u64,
    modify_index: u64,
}

/// The answer to a transaction.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Results {
    results: Option<Vec<Found>>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(rename = "KV")]
    kv: Written,
}

impl Entry {
    fn of(written: Written) -> Answer<Self> {
        let value = BASE64.decode(written.value.unwrap_or_default());
        Ok(Self {
            key: written.key,
            value: value.map_err(|_| senseless())?,
            flags: written.flags,
            session: written.session.unwrap_or_default(),
            created: written.create_index,
            modified: written.modify_index,
        })
    }
}

/// One operation of a transaction.
#[derive(Debug, Clone, Copy)]
pub(in crate::engines::consul) enum Op<'a> {
    Get(&'a str),
    GetTree(&'a str),
    Delete(&'a str),
    /// Deletes a key that was last changed by this number.
    DeleteCas(&'a str, u64),
    CheckNotExists(&'a str),
    /// Fails unless this session has the key.
    CheckSession(&'a str, &'a str),
    /// Fails unless the key's last change has this number.
    CheckIndex(&'a str, u64),
    /// Makes or takes a key for a session.
    Lock(&'a str, u64, &'a [u8], &'a str),
    /// Writes a key that was last changed by this number; 0: that does not exist.
    Cas(&'a str, u64, &'a [u8], u64),
    Set(&'a str, &'a [u8]),
}

impl Op<'_> {
    fn json(self) -> Value {
        let kv = match self {
            Self::Get(key) => json!({"Verb": "get", "Key": key}),
            Self::GetTree(key) => json!({"Verb": "get-tree", "Key": key}),
            Self::Delete(key) => json!({"Verb": "delete", "Key": key}),
            Self::DeleteCas(key, index) => {
                json!({"Verb": "delete-cas", "Key": key, "Index": index})
            }
            Self::CheckNotExists(key) => json!({"Verb": "check-not-exists", "Key": key}),
            Self::CheckSession(key, session) => {
                json!({"Verb": "check-session", "Key": key, "Session": session})
            }
            Self::CheckIndex(key, index) => {
                json!({"Verb": "check-index", "Key": key, "Index": index})
            }
            Self::Lock(key, flags, value, session) => json!({
                "Verb": "lock", "Key": key, "Flags": flags,
                "Value": BASE64.encode(value), "Session": session,
            }),
            Self::Cas(key, flags, value, index) => json!({
                "Verb": "cas", "Key": key, "Flags": flags,
                "Value": BASE64.encode(value), "Index": index,
            }),
            Self::Set(key, value) => {
                json!({"Verb": "set", "Key": key, "Value": BASE64.encode(value)})
            }
        };
        json!({ "KV": kv })
    }
}

/// Which operation of a transaction failed, and why.
pub(super) fn failed(body: &[u8], rule: &str) -> Trouble {
    // Long ones are not Consul's: a transaction has 64 operations.
    let short = Some(body).filter(|body| body.len() <= 64 << 10);
    let said: Option<Value> = short.and_then(|body| serde_json::from_slice(body).ok());
    let said = said.unwrap_or_default();
    let first = &said["Errors"][0];
    let what = first["What"].as_str().unwrap_or("a conflict");
    if what.contains("invalid session") {
        return Trouble::Dead("Consul has ended the session".to_owned());
    }
    if what.contains("Permission denied") {
        return refusal(403, what, rule);
    }
    let at = first["OpIndex"].as_u64().unwrap_or(0);
    let what = format!("Consul did not change it: {what}");
    Trouble::Failed(usize::try_from(at).unwrap_or(usize::MAX), what)
}

/// What is written in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b':')
    .remove(b'~')
    .remove(b'@')
    .remove(b'=');

impl Http {
    /// All operations or none; what those that read or wrote found.
    pub(in crate::engines::consul) async fn txn(&self, ops: &[Op<'_>]) -> Answer<Vec<Entry>> {
        let body: Vec<_> = ops.iter().map(|op| op.json()).collect();
        let body = Value::Array(body).to_string().into_bytes();
        let reply = self.send(&Ask::put("txn", body)).await?;
        found(&reply.body)
    }

    /// The keys with this start, and the number of the state that was read; if `after` is given, once there is a later
    /// one. Never older than this call.
    pub(in crate::engines::consul) async fn tree(
        &self,
        start: &str,
        after: Option<u64>,
    ) -> Answer<(Vec<Entry>, u64)> {
        let path = utf8_percent_encode(start, PLAIN);
        let ask = Ask {
            after,
            ..Ask::get(format!("kv/{path}?recurse&consistent"))
        };
        let reply = self.send(&ask).await?;
        if !reply.found {
            return Ok((Vec::new(), reply.index));
        }
        Ok((entries(&reply.body)?, reply.index))
    }

    /// One key.
    pub(in crate::engines::consul) async fn key(&self, key: &str) -> Answer<Option<Entry>> {
        Ok(self.key_after(key, None).await?.0)
    }

    /// One key, and the number of the state that was read; if `after` is given, once there is a later one.
    pub(in crate::engines::consul) async fn key_after(
        &self,
        key: &str,
        after: Option<u64>,
    ) -> Answer<(Option<Entry>, u64)> {
        let path = utf8_percent_encode(key, PLAIN);
        let ask = Ask {
            after,
            ..Ask::get(format!("kv/{path}?consistent"))
        };
        let reply = self.send(&ask).await?;
        if !reply.found {
            return Ok((None, reply.index));
        }
        let first = entries(&reply.body)?.into_iter().next();
        Ok((Some(first.ok_or_else(senseless)?), reply.index))
    }

    /// The names of the keys with this start.
    pub(in crate::engines::consul) async fn keys(&self, start: &str) -> Answer<Vec<String>> {
        let path = utf8_percent_encode(start, PLAIN);
        let ask = Ask::get(format!("kv/{path}?keys&consistent"));
        let reply = self.send(&ask).await?;
        if !reply.found {
            return Ok(Vec::new());
        }
        json_of(&reply.body)
    }
}

pub(in crate::engines::consul) fn json_of<T: DeserializeOwned>(body: &[u8]) -> Answer<T> {
    serde_json::from_slice(body).map_err(|_| senseless())
}

/// What the operations of a transaction found.
fn found(body: &[u8]) -> Answer<Vec<Entry>> {
    let said: Results = json_of(body)?;
    let results = said.results.into_iter().flatten();
    results.map(|result| Entry::of(result.kv)).collect()
}

/// The keys of an answer.
fn entries(body: &[u8]) -> Answer<Vec<Entry>> {
    let said: Vec<Written> = json_of(body)?;
    said.into_iter().map(Entry::of).collect()
}

/// The answer is not what Consul's API allows: a proxy or another server may have given it.
pub(in crate::engines::consul) fn senseless() -> Trouble {
    Trouble::Unknown("the answer is not one of Consul's API: is this the HTTP port of Consul, 8500 unless told otherwise?".to_owned())
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_and_its_flags_use_all_bits() {
        let json = json!([{
            "LockIndex": 1, "Key": "a/b", "Flags": u64::MAX, "Value": "aGk=", "Session": "s",
            "CreateIndex": 7, "ModifyIndex": 9,
        }]);
        let found = entries(json.to_string().as_bytes()).unwrap();
        let [entry] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            (entry.value.as_slice(), entry.flags),
            (&b"hi"[..], u64::MAX)
        );
        assert_eq!((entry.created, entry.modified), (7, 9));
        for other in ["[{\"Key\": \"a\"}]", "{}", "[[]]", "[0]"] {
            assert!(entries(other.as_bytes()).is_err(), "{other}");
        }
    }

    #[test]
    fn a_failed_transaction_says_which_operation() {
        let body = br#"{"Results":null,"Errors":[{"OpIndex":1,"What":"lock is already held"}]}"#;
        assert!(matches!(failed(body, "RULE"), Trouble::Failed(1, _)));
        let body = br#"{"Errors":[{"OpIndex":1,"What":"failed session: invalid session \"5\""}]}"#;
        assert!(matches!(failed(body, "RULE"), Trouble::Dead(_)));
        let body = br#"{"Errors":[{"OpIndex":0,"What":"Permission denied"}]}"#;
        assert!(matches!(failed(body, "RULE"), Trouble::Denied(why) if why.contains("RULE")));
    }

    /// Every answer of an agent, or of what pretends to be one, is understood or refused.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_agent_wrote() {
        use std::mem::discriminant;
        let fuzz = crate::fuzz::Fuzz {
            name: "consul",
            words: &[
                b"[",
                b"]",
                b"{",
                b"}",
                b",",
                b"null",
                b"\"Key\":\"a/b\"",
                b"\"Value\":\"aGk=\"",
                b"\"Flags\":18446744073709551615",
                b"\"Session\":\"s\"",
                b"\"CreateIndex\":7",
                b"\"ModifyIndex\":9",
                b"\"Results\":[",
                b"\"Errors\":[",
                b"\"OpIndex\":1",
                b"\"What\":\"invalid session\"",
                b"\"KV\":{",
                b"must be between [10s=24h0m0s]",
            ],
        };
        fuzz.run(&[], |input| {
            let of = |found: Answer<Vec<Entry>>| found.map(|all| all.len().min(3)).ok();
            let keys: Answer<Vec<String>> = json_of(input);
            let refusals = [400, 403, 409, 429, 500].map(|status| {
                discriminant(&refusal(status, &String::from_utf8_lossy(input), "RULE"))
            });
            (
                of(found(input)),
                of(entries(input)),
                keys.map(|keys| keys.len().min(3)).ok(),
                discriminant(&failed(input, "RULE")),
                refusals,
                super::super::super::session::shortest(&String::from_utf8_lossy(input)).is_some(),
            )
        });
    }
}
