package dropin

// templates are the shapes of the generator's commands; see generator.fill for the notation.
//
// Left out, because two Redis servers themselves answer them differently: what tells the time or an age (TIME, LASTSAVE,
// OBJECT IDLETIME, XINFO CONSUMERS, XPENDING with a range, XADD *), what is chance (RANDOMKEY, SPOP and SRANDMEMBER of a
// full set, HRANDFIELD and ZRANDMEMBER likewise, ACL GENPASS, LOLWUT, lexical ranges over unequal scores), what describes
// the process (INFO, CONFIG GET port, MEMORY STATS, CLIENT ID), and TTL in its last digits (alike compares those roughly).
// The order of hash tables depends on a secret of each server's: such replies are compared as sets here, and to the byte
// on one server by TestDropinReadsOfOneServer. Left out, because lockproxy refuses them for now: transactions,
// subscriptions, blocking commands, MONITOR, WAIT. COMMAND without an argument, COUNT and LIST have the lock verbs in them:
// dropin_command_test.go.
var templates = []string{
	"SET $s $v", "SET $s $v", "SET $s $v NX|XX", "SET $s $v GET", "SET $s $v EX|PX|KEEPTTL $ttl", "SET $s $v EXAT $at ?GET",
	"SET $s $big", "GET $s", "GET $s", "GET $s", "GETSET $s $v", "GETDEL $s", "GETEX $s ?PERSIST", "GETEX $s EX $ttl", "SETNX $s $v", "SETEX $s $ttl $v",
	"PSETEX $s $ttl $v", "APPEND $s $v", "STRLEN $s", "GETRANGE $s $i $i", "SUBSTR $s 0 $i", "SETRANGE $s $off $w", "INCR $s", "DECR $s",
	"INCRBY $s $N", "DECRBY $s $N", "INCRBYFLOAT $s $f", "MGET $k*", "MGET $s*", "MSET $s,$v*", "MSETNX $s,$v*", "MSET $s,$big*",
	"SET c1 $m", "SET c2 $w", "LCS c1 c2 ?LEN", "LCS c1 c2 IDX ?MINMATCHLEN,$n ?WITHMATCHLEN",
	"HSET $h $m,$w*", "HSET $h $m,$w*", "HSETNX $h $m $w", "HMSET $h $m,$w*", "HGET $h $m", "HMGET $h $m*", "HGETALL $h", "HGETALL $h", "HKEYS $h", "HVALS $h",
	"HLEN $h", "HEXISTS $h $m", "HSTRLEN $h $m", "HDEL $h $m*", "HINCRBY $h cnt $N", "HINCRBYFLOAT $h cnt $f", "HSCAN $h 0 ?COUNT,$n ?MATCH,'m*",
	"HRANDFIELD $a", "HRANDFIELD $a $i ?WITHVALUES", "HSET one f v", "HRANDFIELD one $i WITHVALUES", "HRANDFIELD one",
	"LPUSH $l $w*", "RPUSH $l $v*", "LPUSHX $l $w", "RPUSHX $l $w", "LPOP $l", "RPOP $l ?$n", "LPOP $l $i", "LPOP $a 3", "LRANGE $l $i $i", "LRANGE $l 0 -1",
	"LINDEX $l $i", "LSET $l $i $w", "LINSERT $l BEFORE|AFTER $w $w", "LLEN $l", "LREM $l $i $w", "LTRIM $l 0 $n", "RPOPLPUSH $l $l",
	"LMOVE $l $l LEFT|RIGHT LEFT|RIGHT|UP", "LPOS $l $w ?RANK,$i ?COUNT,$n ?MAXLEN,$n", "LMPOP $n $l* LEFT|RIGHT ?COUNT,$n", "LMPOP 1 $a LEFT",
	"SADD $e $m*", "SADD $e $n*", "SREM $e $m*", "SISMEMBER $e $m", "SMISMEMBER $e $m*", "SCARD $e", "SMEMBERS $e", "SMOVE $e $e $m",
	"SINTER $e*", "SUNION $e*", "SDIFF $e*", "SINTERSTORE $e $e*", "SUNIONSTORE $e $e*", "SDIFFSTORE $e $e*", "SINTERCARD $n $e $e ?LIMIT,$i",
	"SPOP $a", "SPOP $a $i", "SRANDMEMBER $a", "SRANDMEMBER $a $i", "!SADD lone x", "SRANDMEMBER lone", "SRANDMEMBER lone -3",
	"ZADD $z $f $m", "ZADD $z $n,$m*", "ZADD $z NX|XX|GT|LT|CH|INCR $f $m", "ZADD $z NX XX $n $m", "!ZADD $q 0,$m*", "!ZADD $q 0,$m*", "ZADD $z CH $f,$m*", "ZREM $z $m*", "ZSCORE $z $m", "ZMSCORE $z $m*",
	"ZRANK $z $m", "ZREVRANK $z $m", "ZINCRBY $z $f $m", "ZCARD $z", "ZCOUNT $z $r $r", "ZLEXCOUNT $q $y $y", "ZRANGE $z $i $i", "ZRANGE $z 0 -1 WITHSCORES",
	"ZRANGE $z 0 -1 REV ?WITHSCORES", "ZRANGE $z $r $r BYSCORE ?LIMIT,$i,$n ?WITHSCORES", "ZRANGE $q $y $y BYLEX ?LIMIT,$i,$n", "ZREVRANGE $z 0 $i ?WITHSCORES",
	"ZRANGEBYSCORE $z $r $r ?WITHSCORES ?LIMIT,$i,$n", "ZREVRANGEBYSCORE $z $r $r ?WITHSCORES", "ZRANGEBYLEX $q $y $y ?LIMIT,$i,$n", "ZREVRANGEBYLEX $q $y $y",
	"ZPOPMIN $z", "ZPOPMAX $z $n", "ZPOPMIN $z $i", "ZMPOP $n $z* MIN|MAX ?COUNT,$n", "ZMPOP 1 $a MIN", "ZREMRANGEBYRANK $z $i $i", "ZREMRANGEBYSCORE $z $r $r",
	"ZREMRANGEBYLEX $q $y $y", "ZUNION $n $z $z ?WEIGHTS,$f,$f ?AGGREGATE,SUM|MIN|MAX ?WITHSCORES", "ZINTER 2 $z $z ?WITHSCORES", "ZDIFF 2 $z $z ?WITHSCORES",
	"ZUNIONSTORE $z 2 $z $e", "ZINTERSTORE $z 2 $z $z ?WEIGHTS,$n,$f", "ZDIFFSTORE $z 2 $z $z", "ZINTERCARD $n $z $z ?LIMIT,$i", "ZRANGESTORE $z $z $i $i",
	"ZSCAN $z 0 COUNT 1000", "ZRANDMEMBER $a", "ZRANDMEMBER $a $i ?WITHSCORES", "ZADD solo 1 x", "ZRANDMEMBER solo -2 WITHSCORES",
	"XADD $x $id $m $w", "XADD $x $id $m,$w*", "XADD $x NOMKSTREAM MAXLEN ~|= $n $id $m $w", "XADD $x MINID $rid $id a b", "XLEN $x", "XRANGE $x $rid $rid ?COUNT,$n", "XRANGE $x - +", "XREVRANGE $x + - ?COUNT,$n",
	"XREAD ?COUNT,$n STREAMS $x $rid", "XREAD STREAMS $x $x 0 0", "XREAD STREAMS $x 5", "XDEL $x $id*", "XTRIM $x MAXLEN|MINID $n", "XGROUP CREATE $x g1|g2 0|$$|5 ?MKSTREAM", "XGROUP DESTROY $x g2",
	"XGROUP CREATECONSUMER $x g1 c1", "XGROUP DELCONSUMER $x g1 c2", "XGROUP SETID $x g1 $rid", "XREADGROUP GROUP g1 c1|c2 ?COUNT,$n ?NOACK STREAMS $x >", "XREADGROUP GROUP g1 c1 STREAMS $x 0",
	"XACK $x g1 $id*", "XPENDING $x g1", "XCLAIM $x g1 c3 0 $id ?JUSTID", "XAUTOCLAIM $x g1 c3 0 0 ?COUNT,$n ?JUSTID", "XINFO STREAM $x", "XINFO GROUPS $x", "XINFO FOO $x", "XINFO HELP", "XSETID $x $id",
	"PFADD $p $m*", "PFADD $p $w*", "PFCOUNT $p*", "PFMERGE $p $p*", "PFADD $p",
	"GEOADD $g $lon $lat $m", "GEOADD $g ?NX ?CH $lon,$lat,$m*", "GEOPOS $g $m*", "GEODIST $g $m $m ?km|mi|m|xx", "GEOHASH $g $m*", "GEORADIUS_RO $g $lon $lat 500 km ?WITHDIST ?WITHCOORD ?WITHHASH ASC",
	"GEOSEARCH $g FROMMEMBER $m BYRADIUS 2000 km ASC ?COUNT,$n ?WITHDIST ?WITHCOORD", "GEOSEARCH $g FROMLONLAT $lon $lat BYBOX 4000 4000 km DESC WITHHASH", "GEOSEARCHSTORE $z $g FROMMEMBER $m BYRADIUS 900 km ASC",
	"SETBIT $b $bit 0|1|2", "GETBIT $b $bit", "BITCOUNT $b ?$i,$i ?BIT|BYTE", "BITPOS $b 0|1 ?$i ?$i ?BIT", "BITOP AND|OR|XOR|NOT|FOO $b $b $b", "BITOP NOT $b $b", "BITFIELD $b GET u4 0 SET i8 #1 $i INCRBY u8 9 $N",
	"BITFIELD $b OVERFLOW FAIL|SAT|WRAP INCRBY u2 0 3 INCRBY u2 0 3", "BITFIELD_RO $b GET u8 $off", "BITFIELD $b",
	"EVAL $script 1 $s $w", "EVAL $script 2 $h $l $m", "EVAL $script 1 $k $w $n", "EVAL_RO $script 1 $s a", "EVAL $script $i $s", "EVALSHA 0000000000000000000000000000000000000000 0", "EVALSHA x 0",
	"SCRIPT LOAD $script", "SCRIPT EXISTS 0000000000000000000000000000000000000000 x", "SCRIPT FOO", "SCRIPT HELP", "SCRIPT EXISTS",
	"EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 $s", "EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 $s", "!FUNCTION LIST", "FCALL nope 0", "FUNCTION LOAD $w", "FUNCTION FOO", "FUNCTION STATS",
	"DEL $k*", "UNLINK $a*", "EXISTS $k*", "TOUCH $k*", "TYPE $k", "RENAME $k $k", "RENAMENX $k $k", "COPY $k $k ?REPLACE", "COPY $k $k DB $i", "MOVE $k 1|0|99|x", "DBSIZE", "KEYS *", "KEYS hash:?", "KEYS [",
	"SCAN 0 COUNT 1000 ?TYPE,list", "SCAN x", "SCAN 0 MATCH 'str:* COUNT 1000", "EXPIRE $k $ttl ?NX|XX|GT|LT", "EXPIREAT $k $ttl", "PEXPIRE $k $ttl", "PEXPIREAT $k 33177117420000", "PERSIST $k", "EXPIRETIME $a", "TTL $k", "PTTL $k",
	"OBJECT ENCODING $k", "OBJECT REFCOUNT $s", "OBJECT FREQ $k", "OBJECT FOO", "OBJECT HELP", "OBJECT", "DUMP c1", "DUMP $a", "RESTORE $s 0 $w", "RESTORE $s -1 $w REPLACE",
	"SORT $l ?ALPHA ?ASC|DESC ?LIMIT,$i,$n", "SORT $e ALPHA", "SORT $z ALPHA DESC", "SORT $l BY 'w_* GET # GET 'str:*", "SORT $l ALPHA STORE $l", "SORT_RO $l ALPHA",
	"PING", "PING $w", "ECHO $w", "ECHO $big", "PING a b", "ECHO", "SELECT 0", "SELECT $i", "SELECT 0", "SELECT", "FLUSHDB ?ASYNC|SYNC|FOO", "SWAPDB 0 $i", "PUBLISH ch $w", "SPUBLISH ch $w", "PUBSUB NUMSUB a b", "PUBSUB NUMPAT", "PUBSUB FOO",
	"CONFIG GET 'maxmemory*", "CONFIG GET databases save", "CONFIG GET nope", "CONFIG SET nope 1", "CONFIG FOO", "CONFIG SET maxmemory-policy bad", "ACL WHOAMI", "ACL CAT", "ACL CAT nope", "ACL GETUSER default", "ACL GETUSER nope", "ACL FOO",
	"ACL LIST", "ACL USERS", "ACL DRYRUN default get x", "CLUSTER INFO", "CLUSTER SLOTS", "CLUSTER KEYSLOT a", "MEMORY USAGE $a", "MEMORY FOO", "MEMORY HELP", "LATENCY LATEST", "SLOWLOG FOO", "MODULE LIST", "COMMAND GETKEYS SET $w $w",
	"COMMAND GETKEYS EVAL $w $n $w $w", "COMMAND GETKEYSANDFLAGS LMOVE a b LEFT LEFT", "!COMMAND INFO get nosuch", "!COMMAND DOCS get", "COMMAND LIST FILTERBY PATTERN 'xr*", "!COMMAND FOO", "READONLYX", "CLIENT GETNAME", "CLIENT SETNAME $m", "CLIENT FOO",
	"NOSUCH", "NOSUCH $w $w $v", "$w $w", "$v", "nosuch|get|GeT|sEt $s", "get", "SET $s", "HSET $h $m", "DEBUGX $w*", "FAILOVER ABORT", "ROLE", "OBJECT ENCODING", "XGROUP HELP", "XGROUP FOO $x", "!GETEX $s EX", "!SET $s $v EX", "!AUTH $w", "AUTH $m $w", "AUTH a b c",
	"!HELLO 4", "!HELLO x", "!HELLO 2 FOO",
	"FUNCTION LOAD ?REPLACE $lib", "FUNCTION LOAD REPLACE $lib", "FCALL f1|f2 1 $s $w", "FCALL_RO f1|f2 1 $s", "FUNCTION DELETE lib1|lib2", "!FUNCTION LIST WITHCODE", "RESTORE $k 0 $dump REPLACE",
}

// luaLibraries are what FUNCTION LOAD is given.
var luaLibraries = []string{
	"#!lua name=lib1\nredis.register_function('f1', function(keys, args) return redis.call('SET', keys[1], args[1]) end)",
	"#!lua name=lib2\nredis.register_function{function_name='f2', callback=function(keys) return redis.call('TYPE', keys[1]) end, flags={'no-writes'}}",
	"#!lua name=lib1\nredis.register_function('f2', function() return 1 end)",
	"#!lua name=lib1\nreturn 1", "#!js name=lib1\nreturn 1", "#!lua\nreturn 1", "return 1 +", "",
}

// luaScripts answer with every kind of reply a script has, and fail in every way.
var luaScripts = []string{
	"return 1",
	"return redis.call('GET', KEYS[1])",
	"return redis.call('SET', KEYS[1], ARGV[1])",
	"return redis.pcall('INCR', KEYS[1])",
	"return redis.call('INCR', KEYS[1])",
	"return {1, 2.9, 'three', {4, {5}}, false, 'never seen', nil, 6}",
	"return nil", "return true", "return false", "return ''", "return {}", "return 9007199254740993",
	"return redis.error_reply('MY own error')", "return redis.status_reply('FINE')", "return {err='PLAIN error'}", "return {ok='plain'}",
	"return redis.call('HGETALL', KEYS[1])", "redis.setresp(3); return redis.call('HGETALL', KEYS[1])",
	"redis.setresp(3); return {double=3.25}", "redis.setresp(3); return true", "redis.setresp(3); return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
	"return {map={a=1}}", "return {set={x=true}}", "return {double=1e400}", "return {big_number='123456789012345678901234567890'}", "return {verbatim_string={string='hi', format='txt'}}",
	"return #ARGV", "return KEYS", "return ARGV", "return redis.sha1hex(ARGV[1])", "return cjson.encode(ARGV)", "return redis.call('NOSUCH')", "return redis.call('GET')",
	"error('thrown')", "error({err='TABLE thrown'})", "return 1 +", "return undefined_global", "return redis.call('MULTI')", "return redis.call('LRANGE', KEYS[1], 0, -1)",
	"#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 'x')", "#!lua\nreturn 1", "#!js\nreturn 1", "return {redis.call('GET', 'absent:0'), redis.call('LRANGE', 'absent:0', 0, -1)}",
	"return string.rep('x', 100000)", "local t = {} for i = 1, 500 do t[i] = i end return t", "return redis.call('PING')", "return redis.call('TYPE', KEYS[1])",
}
