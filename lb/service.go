package lb

import (
	"fmt"
	"strings"
)

// Service is what Parse needs to know of a Kubernetes Service of type LoadBalancer.
type Service struct {
	Namespace   string
	Name        string
	UID         string
	Annotations map[string]string
	Ports       []Port

	// Local is externalTrafficPolicy: Local.
	Local bool
	// HealthCheckNodePort is where kube-proxy answers for the Service on every node; 0 without
	// policy Local.
	HealthCheckNodePort int
	// ClientIPAffinity is sessionAffinity: ClientIP.
	ClientIPAffinity bool
	// SourceRanges is loadBalancerSourceRanges, or what the older annotation of that purpose holds.
	SourceRanges []string
	// LoadBalancerIP is the deprecated field of that name.
	LoadBalancerIP string
	// IPv4Only and IPv6Only are true when ipFamilies holds that family and nothing else, IPv6First
	// when it begins with IPv6.
	IPv4Only, IPv6Only, IPv6First bool

	// PodTargets: pods are the targets, see [Pods.Choose].
	PodTargets bool
}

// Port is one port of a Service.
type Port struct {
	Name     string // may be empty if it is the only one
	Number   int
	Protocol string // "TCP", "UDP" or "SCTP"
	NodePort int    // 0: none was allocated
	// TargetPorts are its numbers on the pods, sorted. Several: a name that means another number on
	// some of them. Empty: nobody knows.
	TargetPorts []int
}

func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Reasons of notes. They are reasons of Events and conditions too; docs/reference/events.md has
// what to do about each.
const (
	ReasonInvalid              = "InvalidField"          // a value that cannot be what it should be
	ReasonUnsupported          = "UnsupportedField"      // a valid wish that cannot be fulfilled
	ReasonUnknown              = "UnknownAnnotation"     // no such annotation
	ReasonNoEffect             = "FieldWithoutEffect"    // another setting makes it meaningless
	ReasonTargetsTruncated     = "TargetsTruncated"      // the type has no room for all targets
	ReasonTargetAddressMissing = "TargetAddressMissing"  // a dedicated server cannot be reached
	ReasonPodsNotTargets       = "PodsNotTargets"        // pods that were to be targets are not
	ReasonTargetPortUnknown    = "TargetPortUnknown"     // its number on the pods is unknown
	ReasonImmutable            = "ImmutableField"        // one that exists cannot have it
	ReasonHeld                 = "LoadBalancerHeld"      // only its ports and targets are changed
	ReasonCertificate          = "CertificateUnusable"   // a certificate that cannot be used
	ReasonCertificatePending   = "CertificatePending"    // one that will be usable soon
	ReasonPrimaryIP            = "PrimaryIPUnusable"     // it cannot be had, or is deleted too
	ReasonPrimaryIPInUse       = "PrimaryIPInUse"        // something else has it at present
	ReasonCheckKept            = "HealthCheckKept"       // checks from before the takeover
	ReasonSettingsKept         = "SettingsKept"          // settings from before the takeover
	ReasonTargetsNotReplaced   = "TargetsNotReplaced"    // one is unhealthy at its new address
	ReasonTargetsRemoved       = "TargetsRemoved"        // no Node has their addresses
	ReasonNoHealthyTarget      = "NoHealthyTarget"       // for longer than a verdict takes
	ReasonTargetsHealthy       = "TargetsHealthy"        // one is healthy again
	ReasonCheckUnanswered      = "HealthCheckUnanswered" // a PROXY header would break the check
	ReasonPortConflict         = "PortConflict"          // two Services that share want one port
	ReasonNoRoom               = "NoRoomForPort"         // a shared one has no room for a port
	ReasonNoCommonNode         = "NoCommonNode"          // selectors of Services that share differ
	ReasonNotOwned             = "LoadBalancerNotOwned"  // what is needed is not the Service's
)

// Grade says how much of the wish a note takes away.
type Grade int

const (
	// Warning: the load balancer is as asked for, yet somebody should look.
	Warning Grade = iota
	// Error: a part of what was asked for is not done.
	Error
)

// Note is something a user should know about a Service: what, where, and what to change.
type Note struct {
	Grade  Grade
	Reason string // empty: it is told by the condition, and by no Event
	Field  string // annotation, or field of the Service
	Value  string // as the user wrote it; may be empty
	Text   string // what is wrong, and the remedy
	// Figures are numbers of this moment. They are told with the note, but a change of them is no
	// news.
	Figures string
	// About is the UID of the one Service that the note is about, among those that share a load
	// balancer; empty: all of them.
	About string
}

func errorNote(reason, field, value, format string, args ...any) Note {
	text := fmt.Sprintf(format, args...)
	return Note{Grade: Error, Reason: reason, Field: field, Value: value, Text: text}
}

func warningNote(reason, field, value, format string, args ...any) Note {
	text := fmt.Sprintf(format, args...)
	return Note{Grade: Warning, Reason: reason, Field: field, Value: value, Text: text}
}

// What a user wrote, and what the cloud answered, can be of any length; a condition and an Event
// cannot.
const (
	maxValue = 80   // runes
	maxText  = 500  // runes
	maxNotes = 8000 // bytes of all notes together
)

func (n Note) String() string {
	text := cut(n.Text, maxText)
	switch {
	case n.Field == "":
		return text
	case n.Value == "":
		return n.Field + ": " + text
	}
	return fmt.Sprintf("%s=%q: %s", n.Field, cut(n.Value, maxValue), text)
}

// cut shortens a text to a number of runes, and shows that it did.
func cut(text string, limit int) string {
	runes := 0
	for i := range text {
		if runes++; runes > limit {
			return text[:i] + "…"
		}
	}
	return text
}

// Announcement is the note with its figures.
func (n Note) Announcement() string {
	if n.Figures == "" {
		return n.String()
	}
	return n.String() + " (" + n.Figures + ")"
}

// RefusedError says that a Service cannot have a load balancer as it stands, with every reason at
// once.
type RefusedError struct{ Notes []Note }

func (e *RefusedError) Error() string {
	return Join(e.Notes)
}

// Join writes notes as one line, in their order: whole notes, as many as a condition's message has
// room for.
func Join(notes []Note) string {
	var b strings.Builder
	for i, n := range notes {
		line := n.String()
		if b.Len()+len(line) > maxNotes {
			fmt.Fprintf(&b, "; and %d more", len(notes)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}
