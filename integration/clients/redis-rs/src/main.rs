//! redis-rs through lockproxy: every step prints "ok <step>", and the first failure ends the program.
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, PushInfo, PushKind, RedisError, RedisResult, Value, cmd, pipe};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// One connection, to be cloned and shared; it gives up on a reply after five seconds (its own default is half a second).
async fn connect() -> RedisResult<MultiplexedConnection> {
    Ok(connect_hearing(Duration::from_secs(5)).await?.0)
}

/// A connection with its time-out, and what the server pushes on it.
async fn connect_hearing(patience: Duration) -> RedisResult<(MultiplexedConnection, UnboundedReceiver<PushInfo>)> {
    let address = std::env::var("LOCKPROXY_ADDR").expect("LOCKPROXY_ADDR");
    let (sender, heard) = unbounded_channel();
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience)).set_push_sender(sender);
    let client = redis::Client::open(format!("redis://{address}/?protocol=resp3"))?;
    Ok((client.get_multiplexed_async_connection_with_config(&config).await?, heard))
}

/// Asks whoever runs this program to delete the lock behind the proxy's back, and waits until the proxy has noticed.
async fn lose(key: &str) {
    println!("lose {key}");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
}

fn is(error: Result<Value, RedisError>, code: &str) {
    let error = error.expect_err(code);
    assert_eq!(error.code(), Some(code), "{error}");
}

async fn next(heard: &mut UnboundedReceiver<PushInfo>) -> PushInfo {
    timeout(Duration::from_secs(5), heard.recv()).await.expect("a push in time").expect("a push")
}

async fn handshake(con: &mut MultiplexedConnection) -> Outcome {
    let about: String = cmd("CLIENT").arg("INFO").query_async(con).await?; // redis-rs itself sent HELLO 3 and CLIENT SETINFO
    assert!(about.contains(" resp=3"), "{about}");
    assert!(!about.contains("lib-name") || about.contains(" lib-name=redis-rs"), "{about}");
    println!("ok handshake");
    Ok(())
}

async fn data(con: &mut MultiplexedConnection) -> Outcome {
    let _: () = con.set_ex("greeting", "hello", 60).await?;
    assert_eq!(con.get::<_, String>("greeting").await?, "hello");
    assert_eq!(con.get::<_, Option<String>>("nothing").await?, None);
    assert_eq!(con.incr::<_, _, i64>("n", 42).await?, 42);
    println!("ok strings");

    let _: () = con.hset_multiple("user", &[("name", "Ada"), ("born", "1815")]).await?;
    let user: std::collections::HashMap<String, String> = con.hgetall("user").await?;
    assert!(user.len() == 2 && user["name"] == "Ada");
    println!("ok hashes");

    let mut many = pipe();
    (0..1000).for_each(|i| { many.set(format!("p:{i}"), i).ignore().get(format!("p:{i}")); });
    assert_eq!(many.query_async::<Vec<i64>>(con).await?, (0..1000).collect::<Vec<_>>());
    println!("ok pipeline");

    let all: (i64, String) = pipe().atomic().set("a", 1).ignore().incr("a", 1).get("a").query_async(con).await?;
    assert_eq!(all, (2, "2".into()));
    println!("ok transaction");

    let mut own = connect().await?; // WATCH and blocking pops want a connection that nobody shares
    let _: () = cmd("WATCH").arg("a").query_async(&mut own).await?;
    let _: () = con.set("a", "changed by another").await?;
    let done: Option<()> = pipe().atomic().set("a", "lost update").ignore().query_async(&mut own).await?;
    assert!(done.is_none() && con.get::<_, String>("a").await? == "changed by another");
    println!("ok watch");

    let (mut listener, mut heard) = connect_hearing(Duration::from_secs(5)).await?;
    listener.subscribe("news").await?;
    assert_eq!(next(&mut heard).await.kind, PushKind::Subscribe);
    let heard_by: i64 = con.publish("news", "extra").await?;
    assert!(heard_by == 1 || std::env::var("LOCKPROXY_NODES").is_ok()); // one node counts its own
    assert_eq!(next(&mut heard).await.data[1], Value::BulkString("extra".into()));
    listener.unsubscribe("news").await?;
    assert_eq!(next(&mut heard).await.kind, PushKind::Unsubscribe);
    assert_eq!(listener.get::<_, String>("greeting").await?, "hello");
    println!("ok pubsub");

    assert_eq!(own.blpop::<_, Option<(String, String)>>("queue", 1.0).await?, None);
    let waiting = tokio::spawn(async move { own.blpop::<_, (String, String)>("queue", 4.0).await });
    sleep(Duration::from_millis(300)).await;
    let _: () = con.rpush("queue", "job").await?;
    assert_eq!(waiting.await??, ("queue".into(), "job".into()));
    println!("ok blocking");

    let both: (String, String) = cmd("EVAL").arg("return {KEYS[1], ARGV[1]}").arg(1).arg("k").arg("v").query_async(con).await?;
    assert_eq!(both, ("k".into(), "v".into()));
    let double = redis::Script::new("return tonumber(ARGV[1]) * 2"); // EVALSHA; after NOSCRIPT: SCRIPT LOAD and once more
    assert_eq!(double.arg(21).invoke_async::<i64>(con).await?, 42);
    let _: () = cmd("SCRIPT").arg("FLUSH").query_async(con).await?;
    assert_eq!(double.arg(4).invoke_async::<i64>(con).await?, 8);
    println!("ok scripts");
    Ok(())
}

/// Adds one to a counter in two steps, which only the lock makes safe. `own` waits: on the shared connection everybody
/// would wait behind it.
async fn critical(own: &mut MultiplexedConnection, shared: &mut MultiplexedConnection, key: &str) -> RedisResult<()> {
    let owner = uuid::Uuid::new_v4().to_string();
    while !cmd("LOCK").arg(key).arg("OWNER").arg(&owner).arg("EX").arg(30).arg("BLOCK").arg(2000).query_async::<bool>(own).await? {}
    let count: i64 = shared.get("counter").await?;
    let _: () = shared.set("counter", count + 1).await?;
    cmd("UNLOCK").arg(key).arg("OWNER").arg(&owner).query_async(own).await
}

async fn locks(con: &mut MultiplexedConnection) -> Outcome {
    let mut mine = connect().await?; // the lock ends with this connection
    let words = |line: &str| { let mut w = line.split(' '); let mut c = cmd(w.next().unwrap()); w.for_each(|a| { c.arg(a); }); c };
    assert_eq!(words("LOCK plain").query_async::<Value>(&mut mine).await?, Value::Okay);
    is(words("LOCK plain").query_async(&mut mine).await, "OWNERREQUIRED");
    assert_eq!(words("LOCK plain SELF").query_async::<Value>(&mut mine).await?, Value::Okay);
    assert_eq!(words("UNLOCK plain").query_async::<i64>(&mut mine).await?, 0);
    assert_eq!(words("UNLOCK plain").query_async::<i64>(&mut mine).await?, 1);
    is(words("UNLOCK plain").query_async(&mut mine).await, "NOTHELD");
    println!("ok lock");

    let _: () = con.set("counter", 0).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (mut own, mut shared) = (connect().await?, con.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                critical(&mut own, &mut shared, "section").await?;
            }
            RedisResult::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    assert_eq!(con.get::<_, i64>("counter").await?, 80);
    println!("ok owner");

    // Contention: nil at once, then a wait that the other's UNLOCK ends.
    let mut other = connect().await?;
    assert_eq!(words("LOCK busy").query_async::<Value>(&mut mine).await?, Value::Okay);
    assert_eq!(words("LOCK busy").query_async::<Value>(&mut other).await?, Value::Nil);
    let mut waiter = other.clone();
    let granted = tokio::spawn(async move { cmd("LOCK").arg("busy").arg("BLOCK").arg(4000).query_async::<Value>(&mut waiter).await });
    sleep(Duration::from_millis(300)).await;
    let _: () = words("UNLOCK busy").query_async(&mut mine).await?;
    assert_eq!(granted.await??, Value::Okay);
    println!("ok contention");

    // BLOCK shorter than the client's patience: nil. Longer: it gives up, but the connection lives, and so does the wait.
    // Dropping the connection (every clone of it) ends it.
    assert_eq!(words("LOCK busy OWNER late EX 30 BLOCK 300").query_async::<Value>(con).await?, Value::Nil);
    let (mut hasty, heard) = connect_hearing(Duration::from_millis(500)).await?;
    let late = words("LOCK busy BLOCK 60000").query_async::<Value>(&mut hasty).await;
    assert!(late.as_ref().is_err_and(|e| e.is_timeout()), "{late:?}");
    drop((hasty, heard));
    assert_eq!(words("UNLOCK busy").query_async::<i64>(&mut other).await?, 1);
    assert_eq!(words("LOCK busy OWNER late EX 30 BLOCK 4000").query_async::<Value>(con).await?, Value::Okay);
    assert_eq!(words("UNLOCK busy OWNER late").query_async::<i64>(con).await?, 1);
    println!("ok block");

    // The news of a lost lock arrives while the connection is idle: later replies must be the right ones, and the sender of
    // pushes gets it.
    let (mut holder, mut heard) = connect_hearing(Duration::from_secs(5)).await?;
    assert_eq!(words("LOCK lost").query_async::<Value>(&mut holder).await?, Value::Okay);
    lose("lost").await;
    for i in 0..20 {
        let _: () = holder.set("after", i).await?;
        assert_eq!(holder.get::<_, i64>("after").await?, i);
    }
    is(words("UNLOCK lost").query_async(&mut holder).await, "LOCKLOST");
    println!("ok lost");
    let push = next(&mut heard).await;
    assert_eq!(push.kind, PushKind::Other("lock-lost".into()));
    assert_eq!(push.data, ["lost", "plain", "gone"].map(|w| Value::BulkString(w.into())));
    println!("ok push");
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let parts = std::env::var("PARTS").unwrap_or("data,locks".into());
    let mut con = connect().await?;
    handshake(&mut con).await?;
    if parts.contains("data") {
        data(&mut con).await?;
    }
    if parts.contains("locks") {
        locks(&mut con).await?;
    }
    Ok(())
}
