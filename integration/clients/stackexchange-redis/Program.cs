// Works while it holds a lock. dotnet add package StackExchange.Redis; dotnet run localhost:6380 orders page1 page2
using StackExchange.Redis;

RedisKey name = args[1];
using var redis = ConnectionMultiplexer.Connect($"{args[0]},syncTimeout=15000"); // longer than BLOCK
var db = redis.GetDatabase();
// Keep one of these two lines. The first takes a lease: it may be said over any connection, and ends 30 s after the last RENEW. The
// second takes the lock for this connection, which nobody else may use: lockproxy renews it, and frees it when the program dies.
object[] owner = ["OWNER", Guid.NewGuid().ToString()], lease = ["EX", 30];
// object[] owner = [], lease = [];

if (db.Execute("LOCK", [name, .. owner, .. lease, "BLOCK", 10_000]).IsNull) throw new TimeoutException($"{name}: somebody else has it");
var lost = false;
try
{
    foreach (var page in args.Skip(2))
    {
        db.Execute("RENEW", [name, .. owner, .. lease]); // every 10 s at least; throws when the lock is lost
        Console.WriteLine(page);
        Thread.Sleep(1000); // your work
    }
}
catch (Exception error) when (error is RedisException or TimeoutException) // somebody else may have the lock: stop
{
    lost = true;
    throw;
}
finally
{
    if (!lost) db.Execute("UNLOCK", [name, .. owner]);
}
