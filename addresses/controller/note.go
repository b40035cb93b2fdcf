package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of Events and of the condition, beside those of package addresses.
const (
	reasonAccepted = "Accepted"
	reasonInvalid  = "InvalidField"
	reasonUnknown  = "UnknownAnnotation"
	reasonNoNode   = "NoNodeForAddress"
	reasonAssigned = "AddressAssigned"
	reasonMoved    = "AddressMoved"
	reasonRouting  = "AddressRoutingFailed"
	reasonRebuilt  = "AddressLedgerRebuilt"
	reasonDamaged  = "AddressLedgerDamaged"
	// reasonOverwritten: two controllers write one status.
	reasonOverwritten = "AddressStatusOverwritten"
)

// note is something that a user should know of a Service.
type note struct {
	reason string
	field  string
	value  string
	text   string // what is wrong, and the remedy
	// met: the Service has what it asks for.
	met bool
	// quiet: and the condition alone says this.
	quiet bool
}

// longest bounds what a note repeats, in runes: users write values of any length.
const longest = 500

func (n note) String() string {
	text := n.text
	switch {
	case n.field != "" && n.value != "":
		text = fmt.Sprintf("%s=%q: %s", n.field, cut(n.value, 80), n.text)
	case n.field != "":
		text = n.field + ": " + n.text
	}
	return cut(text, longest)
}

// cut shortens a text, and shows that it did.
func cut(text string, runes int) string {
	if r := []rune(text); len(r) > runes {
		return string(r[:runes]) + "…"
	}
	return text
}

// condition sums up what there is to say.
func condition(notes []note) metav1.Condition {
	c := metav1.Condition{
		Type: ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted,
		Message: "the Service has the addresses that it asks for",
	}
	var lines []string
	for _, n := range notes {
		lines = append(lines, n.String())
	}
	if len(lines) > 0 {
		c.Message = cut(strings.Join(lines, "; "), 8*longest)
	}
	if i := slices.IndexFunc(notes, func(n note) bool { return !n.met && !n.quiet }); i >= 0 {
		c.Status, c.Reason = metav1.ConditionFalse, notes[i].reason
	}
	return c
}

// news are the notes that a Service's condition does not hold yet. The condition is the memory: it
// survives a restart, and one cause is announced once.
func news(svc *corev1.Service, notes []note) (fresh []note) {
	said := ""
	if c := meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted); c != nil {
		said = c.Message
	}
	for _, n := range notes {
		if !n.quiet && !strings.Contains(said, n.String()) {
			fresh = append(fresh, n)
		}
	}
	return fresh
}
