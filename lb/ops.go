package lb

import (
	"fmt"
	"net/netip"
	"strings"
)

// Op is a change of a load balancer, by a single request to the cloud unless it is a [Swap]. The
// interface is sealed, so that a switch over its types can be checked for completeness.
type Op interface {
	kind() string
	String() string
}

// The changes.
type (
	Create struct{ Spec Spec }
	// SetLabels replaces all labels. If it fails, no further op is executed, because labels record
	// the ownership of the load balancer and its ports. Name and labels are separate requests, so
	// that a name conflict does not prevent the labels.
	SetLabels          struct{ Labels map[string]string }
	Rename             struct{ Name string }
	ChangeType         struct{ Type string }
	ChangeAlgorithm    struct{ Algorithm Algorithm }
	SetPublicInterface struct{ Enabled bool }
	// AttachNetwork attaches the load balancer to a network, with IP or in Range if valid.
	AttachNetwork struct {
		Network int64
		IP      netip.Addr
		Range   netip.Prefix
	}
	// DetachNetwork detaches the load balancer; the cloud drops its targets in that network.
	DetachNetwork struct{ Network int64 }
	AddListener   struct{ Listener Listener }
	// UpdateListener replaces the listener of that port.
	UpdateListener struct{ Listener Listener }
	DeleteListener struct{ Port int }
	AddTarget      struct{ Target Target }
	RemoveTarget   struct{ Target Target }
	// SetReverseDNS sets the reverse DNS name of an address; empty: the cloud's default.
	SetReverseDNS struct {
		IP   netip.Addr
		Name string
	}
	Delete struct{}

	// CreateCertificate has the cloud obtain a certificate, and returns when it is issued.
	CreateCertificate struct {
		Owner       Owner
		Certificate ManagedCertificate
	}
	// RetryCertificate has the cloud retry obtaining a certificate.
	RetryCertificate struct {
		ID   int64
		Name string
	}
	// DeleteCertificate deletes an unused certificate.
	DeleteCertificate struct {
		ID   int64
		Name string
	}
)

func (Create) kind() string             { return "create" }
func (SetLabels) kind() string          { return "set_labels" }
func (Rename) kind() string             { return "rename" }
func (ReplaceTarget) kind() string      { return "replace_target" }
func (MoveNetwork) kind() string        { return "move_network" }
func (ChangeType) kind() string         { return "change_type" }
func (ChangeAlgorithm) kind() string    { return "change_algorithm" }
func (SetPublicInterface) kind() string { return "set_public_interface" }
func (AttachNetwork) kind() string      { return "attach_network" }
func (DetachNetwork) kind() string      { return "detach_network" }
func (AddListener) kind() string        { return "add_listener" }
func (UpdateListener) kind() string     { return "update_listener" }
func (DeleteListener) kind() string     { return "delete_listener" }
func (AddTarget) kind() string          { return "add_target" }
func (RemoveTarget) kind() string       { return "remove_target" }
func (SetReverseDNS) kind() string      { return "set_reverse_dns" }
func (Delete) kind() string             { return "delete" }
func (CreateCertificate) kind() string  { return "create_certificate" }
func (RetryCertificate) kind() string   { return "retry_certificate" }
func (DeleteCertificate) kind() string  { return "delete_certificate" }

func (o Create) String() string {
	return fmt.Sprintf("create %q with %d listeners and %d targets", o.Spec.Name,
		len(o.Spec.Listeners), len(o.Spec.Targets))
}

func (o SetLabels) String() string       { return fmt.Sprintf("set %d labels", len(o.Labels)) }
func (o Rename) String() string          { return fmt.Sprintf("rename to %q", o.Name) }
func (o ChangeType) String() string      { return "change type to " + o.Type }
func (o ChangeAlgorithm) String() string { return "change algorithm to " + string(o.Algorithm) }
func (o SetPublicInterface) String() string {
	return fmt.Sprintf("set public interface %t", o.Enabled)
}

func (o AttachNetwork) String() string {
	text := fmt.Sprintf("attach to network %d", o.Network)
	if o.IP.IsValid() {
		text += " as " + o.IP.String()
	}
	if o.Range.IsValid() {
		text += " in " + o.Range.String()
	}
	return text
}

func (o DetachNetwork) String() string { return fmt.Sprintf("detach from network %d", o.Network) }
func (o AddListener) String() string {
	return fmt.Sprintf("add listener %d → %d, %s", o.Listener.Port, o.Listener.DestinationPort,
		o.Listener.Check)
}

func (o UpdateListener) String() string {
	return fmt.Sprintf("update listener %d → %d, %s", o.Listener.Port, o.Listener.DestinationPort,
		o.Listener.Check)
}
func (o DeleteListener) String() string { return fmt.Sprintf("delete listener %d", o.Port) }
func (o AddTarget) String() string      { return "add " + o.Target.String() }
func (o RemoveTarget) String() string   { return "remove " + o.Target.String() }
func (o Delete) String() string         { return "delete" }
func (o SetReverseDNS) String() string {
	if o.Name == "" {
		return fmt.Sprintf("reset reverse DNS of %s", o.IP)
	}
	return fmt.Sprintf("set reverse DNS of %s to %s", o.IP, o.Name)
}

func (o CreateCertificate) String() string {
	return fmt.Sprintf("obtain certificate %q for %s", o.Certificate.Name,
		strings.Join(o.Certificate.Domains, ", "))
}
func (o RetryCertificate) String() string  { return fmt.Sprintf("retry certificate %q", o.Name) }
func (o DeleteCertificate) String() string { return fmt.Sprintf("delete certificate %q", o.Name) }

// Title describes an op for users. It must not change while the op is retried with other contents,
// so that a cause is reported once, not for every node that joins.
func Title(op Op) string {
	switch op := op.(type) {
	case Create:
		return "create"
	case SetLabels:
		return "set labels"
	case AddListener:
		return fmt.Sprintf("add listener %d", op.Listener.Port)
	case UpdateListener:
		return fmt.Sprintf("update listener %d", op.Listener.Port)
	}
	return op.String()
}

// Kind is the op's name for metrics. It has few values and contains no number or name.
func Kind(op Op) string { return op.kind() }

// Independent reports whether the next ops are still useful if this op failed. A refused target or
// listener must not prevent the others, nor a network the targets outside of it; for exceptions
// see [Waits].
func Independent(op Op) bool {
	switch op := op.(type) {
	case Create, SetLabels, ChangeType, DetachNetwork, Delete:
		return false
	case SetPublicInterface:
		return !op.Enabled
	}
	return true
}

// NeedsLook reports whether the load balancer or the certificates must be read again after the op,
// because the cloud chooses addresses, targets and IDs.
func NeedsLook(op Op) bool {
	switch op.(type) {
	case Create, SetPublicInterface, AttachNetwork, DetachNetwork, MoveNetwork, AddListener,
		CreateCertificate, RetryCertificate:
		return true
	}
	return false
}
