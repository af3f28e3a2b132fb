//! What the shop answers to.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Outcome, Problem};
use crate::app::App;
use crate::switch::Switch;
use crate::ways::{Way, Work};
use crate::{categories, packets};

type Shop = State<Arc<App>>;

/// All routes.
pub fn routes(app: App) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/items/{item}/{way}", get(books).put(fill).post(buy))
        .route("/categories/{root}", get(tree))
        .route("/packets/{packet}", post(wrap))
        .route("/packets/{packet}/{user}", post(draw))
        .with_state(Arc::new(app))
}

/// Where the locks are, and how often this instance has read a tree from the database.
async fn health(State(app): Shop) -> Json<Value> {
    Json(json!({
        "instance": app.settings.name,
        "locks": app.locks.location(),
        "loads": app.loads.load(Ordering::Relaxed),
    }))
}

fn way(word: &str) -> Outcome<Way> {
    word.parse()
        .map_err(|what: String| Problem::refused(StatusCode::NOT_FOUND, what))
}

async fn buy(
    State(app): Shop,
    Path((item, word)): Path<(u64, String)>,
    Query(switch): Query<Switch>,
) -> Outcome<Response> {
    let switch = &switch.allowed(&app)?;
    let (app, work) = (
        &app,
        Work {
            app: &app,
            item,
            switch,
        },
    );
    let answer = way(&word)?.buy(&work).await?;
    Ok(answer.response(&app.settings.name))
}

#[derive(Debug, Deserialize)]
struct Fill {
    left: i64,
}

async fn fill(
    State(app): Shop,
    Path((item, word)): Path<(u64, String)>,
    Query(fill): Query<Fill>,
) -> Outcome<()> {
    way(&word)?.fill(&app, item, fill.left).await
}

async fn books(State(app): Shop, Path((item, word)): Path<(u64, String)>) -> Outcome<Json<Value>> {
    match way(&word)?.books(&app, item).await? {
        Some(books) => Ok(Json(json!({ "left": books.left, "sold": books.sold }))),
        None => Err(Problem::refused(
            StatusCode::NOT_FOUND,
            "there is no such item",
        )),
    }
}

#[derive(Debug, Deserialize)]
struct Ttl {
    /// In milliseconds; without it nothing is kept.
    ttl: Option<u64>,
}

async fn tree(
    State(app): Shop,
    Path(root): Path<u64>,
    Query(Ttl { ttl }): Query<Ttl>,
) -> Outcome<Response> {
    let tree = match ttl {
        Some(ttl) => categories::tree(&app, root, Duration::from_millis(ttl)).await?,
        None => categories::load(&app, root).await?.map(Arc::new),
    };
    Ok(match tree {
        Some(tree) => Json(&*tree).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

#[derive(Debug, Deserialize)]
struct Wrap {
    cents: u64,
    parts: u64,
}

async fn wrap(
    State(app): Shop,
    Path(packet): Path<u64>,
    Query(Wrap { cents, parts }): Query<Wrap>,
) -> Outcome<()> {
    packets::wrap(&app, packet, cents, parts).await
}

async fn draw(State(app): Shop, Path((packet, user)): Path<(u64, u64)>) -> Outcome<Json<Value>> {
    let drawn = packets::draw(&app, packet, user).await?;
    Ok(Json(
        json!({ "cents": drawn.cents, "before": drawn.before }),
    ))
}
