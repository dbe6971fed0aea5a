package commandtable

import "strings"

// WrongArity is what Redis says of a call with too few words, or too many.
func WrongArity(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

// NotRun is what Redis answers when it does not run c, for the reason that line tells: EXEC's ends the transaction.
func (c *Command) NotRun(line string) string {
	if c.Conn == ConnExec {
		return ExecAborted(line)
	}
	return line
}

// ExecAborted is what Redis answers an EXEC that it does not run, for the reason that line tells.
func ExecAborted(line string) string {
	return "EXECABORT Transaction discarded because of: " + strings.TrimPrefix(line, "ERR ")
}
