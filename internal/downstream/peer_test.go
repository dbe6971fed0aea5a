package downstream

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

// A certificate names its client only if it has one common name.
func TestCertificateNamesOne(t *testing.T) {
	cn, o := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 10}
	for want, parts := range map[string][]pkix.AttributeTypeAndValue{
		"alice": {{Type: o, Value: "team"}, {Type: cn, Value: "alice"}},
		"":      {{Type: cn, Value: "eve"}, {Type: cn, Value: "alice"}},
	} {
		var subject pkix.Name
		var set pkix.RDNSequence
		for _, part := range parts {
			set = append(set, pkix.RelativeDistinguishedNameSET{part})
		}
		if subject.FillFromRDNSequence(&set); onlyName(subject) != want {
			t.Errorf("%v names %q, want %q", parts, onlyName(subject), want)
		}
	}
	if got := onlyName(pkix.Name{}); got != "" {
		t.Errorf("nobody is named %q", got)
	}
}
