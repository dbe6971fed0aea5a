# Put before the suite's own client when it is to speak RESP3. With servers it
# starts itself the suite has them begin in RESP3; an external one is asked.
proc lockproxy_hello3 fd {
    if {!$::force_resp3} return
    puts -nonewline $fd "HELLO 3\r\n"
    flush $fd
    lockproxy_skip_reply $fd
}

proc lockproxy_skip_reply fd {
    set line [gets $fd]
    set count [string trimright [string range $line 1 end] "\r"]
    switch -exact -- [string index $line 0] {
        "%" {set count [expr {2 * $count}]}
        "*" - "~" {}
        "$" - "=" {read $fd [expr {$count + 2}]; return}
        "" - "-" {error "HELLO 3 is answered with '$line'"}
        default return
    }
    for {set i 0} {$i < $count} {incr i} {lockproxy_skip_reply $fd}
}

