package lb

import (
	"fmt"
	"strings"
)

// Service is the part of a Kubernetes Service of type LoadBalancer that Parse uses.
type Service struct {
	Namespace   string
	Name        string
	UID         string
	Annotations map[string]string
	Ports       []Port

	// Local is externalTrafficPolicy: Local.
	Local bool
	// HealthCheckNodePort is the port of every node at which kube-proxy reports the Service's
	// endpoints; 0 without policy Local.
	HealthCheckNodePort int
	// ClientIPAffinity is sessionAffinity: ClientIP.
	ClientIPAffinity bool
	// SourceRanges is loadBalancerSourceRanges, or the older annotation for it.
	SourceRanges []string
	// LoadBalancerIP is the deprecated field of that name.
	LoadBalancerIP string
	// IPv4Only and IPv6Only report whether ipFamilies has only that family, IPv6First whether its
	// first is IPv6.
	IPv4Only, IPv6Only, IPv6First bool

	// PodTargets: pods are the targets, by [Pods.Choose].
	PodTargets bool
}

// Port is a port of a Service.
type Port struct {
	Name     string // may be empty if it is the only port
	Number   int
	Protocol string // "TCP", "UDP" or "SCTP"
	NodePort int    // 0: not allocated
	// TargetPorts are the port's numbers on the pods, sorted: several if a named port differs
	// between pods, empty if unknown.
	TargetPorts []int
}

func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Reasons of notes, Events and conditions; docs/reference/events.md has remedies.
const (
	ReasonInvalid              = "InvalidField"
	ReasonUnsupported          = "UnsupportedField" // a valid request that cannot be fulfilled
	ReasonUnknown              = "UnknownAnnotation"
	ReasonNoEffect             = "FieldWithoutEffect"   // another setting overrides it
	ReasonTargetsTruncated     = "TargetsTruncated"     // the type has no room for all targets
	ReasonTargetAddressMissing = "TargetAddressMissing" // a dedicated server cannot be reached
	ReasonPodsNotTargets       = "PodsNotTargets"
	ReasonTargetPortUnknown    = "TargetPortUnknown" // no pod resolves a named target port
	ReasonImmutable            = "ImmutableField"
	ReasonHeld                 = "LoadBalancerHeld" // only its ports and targets are changed
	ReasonCertificate          = "CertificateUnusable"
	ReasonCertificatePending   = "CertificatePending"
	ReasonPrimaryIP            = "PrimaryIPUnusable" // not available, or deleted with the balancer
	ReasonPrimaryIPInUse       = "PrimaryIPInUse"
	ReasonCheckKept            = "HealthCheckKept"    // checks from before the takeover
	ReasonSettingsKept         = "SettingsKept"       // settings from before the takeover
	ReasonTargetsNotReplaced   = "TargetsNotReplaced" // a target is unhealthy at its new address
	ReasonNoHealthyTarget      = "NoHealthyTarget"    // for longer than the time of a verdict
	ReasonTargetsHealthy       = "TargetsHealthy"
	ReasonPortConflict         = "PortConflict"
	ReasonNoRoom               = "NoRoomForPort"
	ReasonNoCommonNode         = "NoCommonNode"
	ReasonNotOwned             = "LoadBalancerNotOwned"
)

// Grade is the severity of a note.
type Grade int

const (
	// Warning: the load balancer is as requested, but the user should check something.
	Warning Grade = iota
	// Error: a part of the request is not fulfilled.
	Error
)

// Note is a message to the user about a Service: the field, the problem, and the remedy.
type Note struct {
	Grade  Grade
	Reason string // empty: only in the condition, no Event
	Field  string // annotation, or field of the Service
	Value  string // as the user wrote it; may be empty
	Text   string // the problem, and the remedy
	// Figures are current numbers. They are part of an Event, but a change of them is no reason
	// for a new Event.
	Figures string
	// About is the UID of the sharing Service that the note is about; empty: all of them.
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

// Values of a user and error messages of the cloud have any length, conditions and Events do not.
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

func cut(text string, limit int) string {
	runes := 0
	for i := range text {
		if runes++; runes > limit {
			return text[:i] + "…"
		}
	}
	return text
}

// Announcement returns the note with its figures.
func (n Note) Announcement() string {
	if n.Figures == "" {
		return n.String()
	}
	return n.String() + " (" + n.Figures + ")"
}

// RefusedError lists every reason why a Service cannot have a load balancer.
type RefusedError struct{ Notes []Note }

func (e *RefusedError) Error() string {
	return Join(e.Notes)
}

// Join joins notes in their order, as many whole notes as fit into a condition's message.
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
