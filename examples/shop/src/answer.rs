//! What a request is told.

use std::fmt;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use leasehold::{LoadError, OnceError};
use serde_json::json;

/// How an attempt to buy one piece ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// One piece was sold.
    Sold,
    /// There are no more.
    SoldOut,
    /// Another request has the lock, or was faster each time: nothing was sold, try again.
    Busy,
    /// The lock was lost meanwhile and the stock refused the write by its fence: nothing was sold.
    Late,
}

impl Answer {
    /// As JSON, with the name of the instance.
    pub fn response(self, instance: &str) -> Response {
        let (status, word) = match self {
            Self::Sold => (StatusCode::OK, "sold"),
            Self::SoldOut => (StatusCode::GONE, "sold out"),
            Self::Busy => (StatusCode::CONFLICT, "busy"),
            Self::Late => (StatusCode::SERVICE_UNAVAILABLE, "late"),
        };
        let body = Json(json!({ "answer": word, "instance": instance }));
        let mut response = (status, body).into_response();
        if self == Self::Busy {
            let _ = response.headers_mut().insert(RETRY_AFTER, 1.into());
        }
        response
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    what: String,
}

/// An answer, or why there is none.
pub type Outcome<T> = Result<T, Problem>;

impl Problem {
    /// The caller asked for what is not there, or is not allowed.
    pub(crate) fn refused(status: StatusCode, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { status, what }
    }

    /// A load that failed, as each request that waited for it is told.
    pub(crate) fn from_load(failed: &LoadError<Self>) -> Self {
        Self::failed(failed)
    }

    fn failed(what: &impl fmt::Display) -> Self {
        Self::refused(StatusCode::INTERNAL_SERVER_ERROR, what.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, self.what).into_response()
    }
}

impl From<leasehold::Error> for Problem {
    fn from(error: leasehold::Error) -> Self {
        let status = match error.is_transient() {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::refused(status, error.to_string())
    }
}

impl<T> From<OnceError<T, Self>> for Problem {
    fn from(failed: OnceError<T, Self>) -> Self {
        match failed {
            OnceError::Work(problem) => problem,
            OnceError::Lock(failed) => failed.error.into(),
        }
    }
}

impl From<redis::RedisError> for Problem {
    fn from(error: redis::RedisError) -> Self {
        Self::failed(&error)
    }
}

impl From<mysql_async::Error> for Problem {
    fn from(error: mysql_async::Error) -> Self {
        Self::failed(&error)
    }
}
