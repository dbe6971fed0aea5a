package dedicated

// Setting is something a client says of itself that this proxy keeps: at once, or, when it is said within a transaction, as
// soon as EXEC's reply shows that Redis has taken it.
type Setting struct {
	Of    SettingOf
	Value string
}

// SettingOf is what a client may say of itself.
type SettingOf uint8

const (
	NoSetting SettingOf = iota
	SettingName
	SettingLibrary
	SettingVersion
	SettingParent // of its spans: a traceparent
	SettingNoEvict
	SettingNoTouch
	SettingLossPush
)
