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

// Reasons of notes. They are reasons of Events and conditions too.
const (
	// ReasonInvalid: a value that cannot be what it should be.
	ReasonInvalid = "InvalidField"
	// ReasonUnsupported: a valid wish that this version or this cloud cannot fulfill.
	ReasonUnsupported = "UnsupportedField"
	// ReasonUnknown: an annotation below a known prefix that nobody reads.
	ReasonUnknown = "UnknownAnnotation"
	// ReasonNoEffect: a setting that something else in the same Service makes meaningless.
	ReasonNoEffect = "FieldWithoutEffect"
	// ReasonTargetsTruncated: more nodes than the load balancer's type takes as targets.
	ReasonTargetsTruncated = "TargetsTruncated"
	// ReasonTargetAddressMissing: a node on a dedicated server that has no address at which the
	// load balancer could reach it.
	ReasonTargetAddressMissing = "TargetAddressMissing"
	// ReasonPodsNotTargets: pods that shall be targets and are not.
	ReasonPodsNotTargets = "PodsNotTargets"
	// ReasonTargetPortUnknown: nobody knows to which port of the pods a port leads.
	ReasonTargetPortUnknown = "TargetPortUnknown"
	// ReasonImmutable: a wish that an existing load balancer cannot follow.
	ReasonImmutable = "ImmutableField"
	// ReasonHeld: a Service that is refused has a load balancer, of which only ports and targets
	// follow the Service and the nodes.
	ReasonHeld = "LoadBalancerHeld"
	// ReasonCertificate: a certificate that cannot be used.
	ReasonCertificate = "CertificateUnusable"
	// ReasonCertificatePending: a certificate that will be usable soon.
	ReasonCertificatePending = "CertificatePending"
	// ReasonPrimaryIP: a primary IP that the load balancer cannot be created with, or that goes
	// with it.
	ReasonPrimaryIP = "PrimaryIPUnusable"
	// ReasonPrimaryIPInUse: one that something else has, maybe not for long.
	ReasonPrimaryIPInUse = "PrimaryIPInUse"
	// ReasonCheckKept: the health checks are those of the controller that had the load balancer
	// before.
	ReasonCheckKept = "HealthCheckKept"
	// ReasonSettingsKept: settings are those of whoever had the load balancer before.
	ReasonSettingsKept = "SettingsKept"
	// ReasonTargetsNotReplaced: a target that changed its address is not healthy there, so no other
	// changes.
	ReasonTargetsNotReplaced = "TargetsNotReplaced"
	// ReasonTargetsRemoved: addresses that were targets and that no Node has were removed.
	ReasonTargetsRemoved = "TargetsRemoved"
	// ReasonNoHealthyTarget: a listener has found no target healthy for longer than a verdict
	// takes.
	ReasonNoHealthyTarget = "NoHealthyTarget"
	// ReasonTargetsHealthy: it finds one healthy again.
	ReasonTargetsHealthy = "TargetsHealthy"
	// ReasonCheckUnanswered: no node answers a health check that a PROXY header would break.
	ReasonCheckUnanswered = "HealthCheckUnanswered"
	// ReasonPortConflict: two Services that share a load balancer ask for the same port.
	ReasonPortConflict = "PortConflict"
	// ReasonNoRoom: a load balancer that is shared has no room for a port.
	ReasonNoRoom = "NoRoomForPort"
	// ReasonNoCommonNode: a Service's node selector leaves no node that the others which share its
	// load balancer admit.
	ReasonNoCommonNode = "NoCommonNode"
	// ReasonNotOwned: the load balancer that would be needed belongs to somebody else.
	ReasonNotOwned = "LoadBalancerNotOwned"
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
