# Written by: go test ./internal/config -update
_lockproxy() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} live=
	COMPREPLY=()
	[ "${COMP_WORDS[1]}" != health ] || live=" --live"
	if [ "${COMP_WORDS[1]}" = run ] && [ "$COMP_CWORD" -gt 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "--lock --wait --fair --shared --exclusive --limit --at-least --lease --address --tls --cacert --cert --key" -- "$cur")
		return
	fi
	if [ "${COMP_WORDS[1]}" = top ] && [ "$COMP_CWORD" -gt 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "--address --tls --cacert --cert --key --every --rows --once" -- "$cur")
		return
	fi
	case $prev in
	--upstream) mapfile -t COMPREPLY < <(:) ;;
	--listen) mapfile -t COMPREPLY < <(:) ;;
	--tls-listen) mapfile -t COMPREPLY < <(:) ;;
	--tls-cert) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--tls-key) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--tls-client-ca) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--tls-client-auth) mapfile -t COMPREPLY < <(compgen -W "no optional required" -- "$cur") ;;
	--tls-auth-user-passwords) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--proxy-protocol) mapfile -t COMPREPLY < <(compgen -W "off required" -- "$cur") ;;
	--proxy-protocol-from) mapfile -t COMPREPLY < <(:) ;;
	--unix-socket-mode) mapfile -t COMPREPLY < <(:) ;;
	--unix-socket-group) mapfile -t COMPREPLY < <(:) ;;
	--attached) mapfile -t COMPREPLY < <(compgen -W "yes no" -- "$cur") ;;
	--reuse-port) mapfile -t COMPREPLY < <(compgen -W "yes no" -- "$cur") ;;
	--protected-mode) mapfile -t COMPREPLY < <(compgen -W "yes no" -- "$cur") ;;
	--upstream-tls-ca) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--upstream-tls-cert) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--upstream-tls-key) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--upstream-tls-server-name) mapfile -t COMPREPLY < <(:) ;;
	--upstream-password-file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--sentinel-password-file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--cluster-address-map) mapfile -t COMPREPLY < <(:) ;;
	--cluster-refresh) mapfile -t COMPREPLY < <(:) ;;
	--cluster-retry) mapfile -t COMPREPLY < <(:) ;;
	--present) mapfile -t COMPREPLY < <(compgen -W "standalone cluster" -- "$cur") ;;
	--announce-address) mapfile -t COMPREPLY < <(:) ;;
	--config) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--quorum) mapfile -t COMPREPLY < <(:) ;;
	--quorum-password-file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--quorum-max-lease) mapfile -t COMPREPLY < <(:) ;;
	--quorum-node-timeout) mapfile -t COMPREPLY < <(:) ;;
	--locks) mapfile -t COMPREPLY < <(:) ;;
	--locks-password-file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--lock-watchdog-timeout) mapfile -t COMPREPLY < <(:) ;;
	--drain-delay) mapfile -t COMPREPLY < <(:) ;;
	--drain-timeout) mapfile -t COMPREPLY < <(:) ;;
	--max-hold) mapfile -t COMPREPLY < <(:) ;;
	--cluster-pubsub) mapfile -t COMPREPLY < <(compgen -W "sharded classic both" -- "$cur") ;;
	--implicit-reentry) mapfile -t COMPREPLY < <(compgen -W "auto always never" -- "$cur") ;;
	--wait-poll) mapfile -t COMPREPLY < <(:) ;;
	--max-clients) mapfile -t COMPREPLY < <(:) ;;
	--max-upstream-connections) mapfile -t COMPREPLY < <(:) ;;
	--max-locks-per-user) mapfile -t COMPREPLY < <(:) ;;
	--max-bulk) mapfile -t COMPREPLY < <(:) ;;
	--max-query-memory) mapfile -t COMPREPLY < <(:) ;;
	--max-reply-memory) mapfile -t COMPREPLY < <(:) ;;
	--client-output-buffer-limit) mapfile -t COMPREPLY < <(:) ;;
	--idle-timeout) mapfile -t COMPREPLY < <(:) ;;
	--upstream-timeout) mapfile -t COMPREPLY < <(:) ;;
	--handshake-timeout) mapfile -t COMPREPLY < <(:) ;;
	--allow) mapfile -t COMPREPLY < <(compgen -W "debug monitor" -- "$cur") ;;
	--deny) mapfile -t COMPREPLY < <(:) ;;
	--blocking-commands) mapfile -t COMPREPLY < <(:) ;;
	--operators) mapfile -t COMPREPLY < <(:) ;;
	--metrics-listen) mapfile -t COMPREPLY < <(:) ;;
	--admin-socket) mapfile -t COMPREPLY < <(:) ;;
	--admin-listen) mapfile -t COMPREPLY < <(:) ;;
	--admin-token-file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--admin-view-token-file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--admin-tls-cert) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--admin-tls-key) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--admin-tls-client-ca) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--event-log) mapfile -t COMPREPLY < <(:) ;;
	--log-level) mapfile -t COMPREPLY < <(compgen -W "debug info warn error" -- "$cur") ;;
	--log-format) mapfile -t COMPREPLY < <(compgen -W "text json" -- "$cur") ;;
	*) mapfile -t COMPREPLY < <(compgen -W "run top health$live --upstream --listen --tls-listen --tls-cert --tls-key --tls-client-ca --tls-client-auth --tls-auth-user-passwords --proxy-protocol --proxy-protocol-from --unix-socket-mode --unix-socket-group --attached --reuse-port --protected-mode --upstream-tls-ca --upstream-tls-cert --upstream-tls-key --upstream-tls-server-name --upstream-password-file --sentinel-password-file --cluster-address-map --cluster-refresh --cluster-retry --present --announce-address --config --quorum --quorum-password-file --quorum-max-lease --quorum-node-timeout --locks --locks-password-file --lock-watchdog-timeout --drain-delay --drain-timeout --max-hold --cluster-pubsub --implicit-reentry --wait-poll --max-clients --max-upstream-connections --max-locks-per-user --max-bulk --max-query-memory --max-reply-memory --client-output-buffer-limit --idle-timeout --upstream-timeout --handshake-timeout --allow --deny --blocking-commands --operators --metrics-listen --admin-socket --admin-listen --admin-token-file --admin-view-token-file --admin-tls-cert --admin-tls-key --admin-tls-client-ca --event-log --log-level --log-format --check-config --help --help-all --version" -- "$cur") ;;
	esac
}
complete -o default -F _lockproxy lockproxy
