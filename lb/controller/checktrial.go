package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/lb"
)

// memory is what must outlive the process: whether a change of health checks leaves healthy nodes
// takes time to know, and each attempt costs traffic, so the next process must neither leave it nor
// make it again.
//
// It is kept in the Service's annotation [lb.AnnotationState]; a user who removes that has what was
// refused tried again.
type memory struct {
	checks
	// Reissue is when the cloud is asked to try again to obtain a certificate that it could not
	// obtain.
	Reissue time.Time `json:"reissue,omitzero"`
}

// checks are about a change of health checks. One that leaves no healthy node is taken back, which
// takes time to know.
type checks struct {
	// Trial names the checks that are being tried, and Was are the ones they replaced, by the
	// listener's port. A check of the node port has port 0, because a listener may get another node
	// port.
	Trial string                 `json:"trial,omitempty"`
	Was   map[int]lb.HealthCheck `json:"was,omitempty"`
	// Until is when their effect shows.
	Until time.Time `json:"until,omitzero"`
	// Refused names the checks that left no healthy node; Was are the ones to keep instead.
	Refused string `json:"refused,omitempty"`
}

// stored is a memory as the annotation holds it. It names its Service, because an annotation is
// copied with a manifest, and what happened to one load balancer says nothing of another.
type stored struct {
	Of types.UID `json:"of"`
	memory
}

// recall reads what was remembered of this Service. What nobody can read is forgotten: it costs
// another try.
func recall(svc *corev1.Service) memory {
	var s stored
	if json.Unmarshal([]byte(svc.Annotations[lb.AnnotationState]), &s) != nil || s.Of != svc.UID {
		return memory{}
	}
	return s.memory
}

// text is the memory of a Service as its annotation holds it; empty if there is nothing to
// remember.
func (m memory) text(of types.UID) string {
	if m.Trial == "" && m.Refused == "" && m.Reissue.IsZero() {
		return ""
	}
	text, err := json.Marshal(stored{Of: of, memory: m})
	if err != nil {
		panic(fmt.Sprintf("encoding numbers and texts: %v", err)) // no value of these types can fail
	}
	return string(text)
}

// open reports whether checks are being tried.
func (c checks) open() bool { return c.Trial != "" && len(c.Was) > 0 }

// unsure reports whether new checks have not proved themselves: then the way back to the old ones
// stays open.
func (c checks) unsure() bool { return c.Trial != "" || c.Refused != "" }

// without returns what is left of a trial when the cloud refused to change the checks of some
// ports. It is not forgotten when that is nothing: a memory that goes away looks like a user's wish
// to try again.
func (c checks) without(ports []int) checks {
	if !c.open() || len(ports) == 0 {
		return c
	}
	c.Was = maps.Clone(c.Was)
	for _, port := range ports {
		delete(c.Was, port)
	}
	return c
}

// reissuePeriod is between two attempts to obtain a certificate: the authority counts failed ones.
const reissuePeriod = 24 * time.Hour

// reissue reports whether a certificate that could not be obtained is due for another attempt. The
// first time, the attempt was just made.
func (m memory) reissue(now time.Time) (next memory, due bool) {
	due = !m.Reissue.IsZero() && !now.Before(m.Reissue)
	if due || m.Reissue.IsZero() {
		m.Reissue = now.Add(reissuePeriod).Truncate(time.Second)
	}
	return m, due
}

// patience is how long after the time of a verdict targets may be neither healthy nor unhealthy.
const patience = 5 * time.Minute

// trial is what the memory makes of a spec.
type trial struct {
	memory checks
	notes  []lb.Note
}

// tried decides about changes of health checks.
//
//	checks wanted           remembered            now
//	as they are             –                     nothing
//	other, targets healthy  –                     change them, remember the old ones
//	being tried             not yet time          nothing
//	being tried             some healthy          forget
//	being tried             none healthy          the old ones, remember the refusal
//	refused                 –                     the old ones
//	the old ones again      being tried           the old ones
//	others again            whatever              as though nothing was remembered but the oldest checks
func (p Plan) tried(spec lb.Spec, have lb.State) (lb.Spec, trial) {
	m := p.memory.checks
	digest := spec.CheckDigest()
	back := func() lb.Spec { return spec.KeepChecks(replaced(spec, have, m.Was)) }
	if m.Refused == digest {
		// Not simply those that are there: putting the old ones back may have failed.
		return back(), trial{memory: m, notes: []lb.Note{rolledBack(spec, m.Was)}}
	}
	if m.open() && spec.ChecksKept {
		// The user does not want them any more: those that are there are not the ones to keep.
		if spec = back(); slices.Equal(spec.Listeners, have.Listeners) {
			m = checks{}
		}
		return spec, trial{memory: m}
	}
	if m.Refused != "" {
		m = checks{}
	}
	if m.Trial == digest && !p.now.Before(m.Until) {
		switch good, known := p.judged(have); {
		case !known:
			return spec, trial{memory: m.joined(spec, have)}
		case good:
			m = checks{}
		default:
			note := rolledBack(spec, m.Was)
			return back(), trial{memory: checks{Refused: digest, Was: m.Was}, notes: []lb.Note{note}}
		}
	}
	changed := changedChecks(spec, have)
	if len(changed) == 0 {
		if m.Trial != "" && m.Trial != digest {
			m = checks{}
		}
		if m.open() {
			m = m.joined(spec, have)
		}
		return spec, trial{memory: m}
	}
	maps.Copy(changed, m.Was) // the oldest are the ones that worked
	m = checks{Trial: digest, Was: changed, Until: p.now.Add(verdict(spec))}
	return spec, trial{memory: m.joined(spec, have)}
}

// joined returns the trial with the listeners that are opened while it lasts: when the checks are
// taken back, those connect to their node ports.
func (c checks) joined(spec lb.Spec, have lb.State) checks {
	present := lb.ByPort(have.Listeners)
	c.Was = maps.Clone(c.Was)
	for _, l := range spec.Listeners {
		if _, open := present[l.Port]; !open && have.Exists() {
			check := l.NodePortCheck()
			check.Port = 0
			c.Was[l.Port] = check
		}
	}
	return c
}

// judged reports whether the checks on trial leave healthy nodes, when that can be known.
func (p Plan) judged(have lb.State) (good, known bool) {
	m := p.memory.checks
	idle := p.idle()
	if p.now.Before(m.Until) || !idle && anyUnknown(m.Was, have) && p.now.Before(m.Until.Add(patience)) {
		return false, false
	}
	return idle || !anyDead(m.Was, have), true
}

// heldChecks ends the trial of a Service that is refused: whatever it asks for now, checks that
// leave no healthy node are not to stay until somebody has corrected it.
func (p Plan) heldChecks(have lb.State) (m checks, ops []lb.Op, notes []lb.Note) {
	m = p.memory.checks
	if m.open() {
		switch good, known := p.judged(have); {
		case known && good:
			m = checks{}
		case known:
			m = checks{Refused: m.Trial, Was: m.Was}
		}
	}
	if m.Refused == "" {
		return m, nil, nil
	}
	back := replaced(p.Spec, have, m.Was)
	for _, old := range have.Listeners {
		if back[old.Port] != old {
			ops = append(ops, lb.UpdateListener{Listener: back[old.Port]})
		}
	}
	return m, ops, []lb.Note{rolledBack(lb.Spec{}, m.Was)}
}

// changedChecks are the old checks of listeners that judge by other ones from now on and have
// healthy targets.
func changedChecks(spec lb.Spec, have lb.State) map[int]lb.HealthCheck {
	old := lb.ByPort(have.Listeners)
	changed := make(map[int]lb.HealthCheck)
	for _, l := range spec.Listeners {
		if was, ok := old[l.Port]; ok && was.Check != l.Check && have.Health(l.Port).Healthy > 0 {
			if was.Check.Port == was.DestinationPort {
				was.Check.Port = 0
			}
			changed[l.Port] = was.Check
		}
	}
	return changed
}

// anyDead reports whether some listener that was changed has unhealthy targets and no healthy one.
// Those that are neither have had their time.
func anyDead(was map[int]lb.HealthCheck, have lb.State) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(was)), func(port int) bool {
		h := have.Health(port)
		return h.Unhealthy > 0 && h.Healthy == 0
	})
}

func anyUnknown(was map[int]lb.HealthCheck, have lb.State) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(was)), func(port int) bool {
		h := have.Health(port)
		return h.Unknown > 0 && h.Healthy == 0
	})
}

// replaced are the listeners as they are, with the checks that they had, if those can be answered.
func replaced(spec lb.Spec, have lb.State, was map[int]lb.HealthCheck) map[int]lb.Listener {
	byPort := lb.ByPort(have.Listeners)
	for port, check := range was {
		if l, ok := byPort[port]; ok {
			if check.Port == 0 {
				check.Port = l.DestinationPort
			}
			l.Check = spec.Answering(check, l)
			byPort[port] = l
		}
	}
	return byPort
}

// verdict is how long it takes until every target is judged by the new checks.
func verdict(spec lb.Spec) time.Duration {
	longest := time.Duration(0)
	for _, l := range spec.Listeners {
		longest = max(longest, l.Check.Verdict())
	}
	return longest
}

// rolledBack is the note about checks that were taken back; was are the ones before, by their port.
func rolledBack(spec lb.Spec, was map[int]lb.HealthCheck) lb.Note {
	const most = 2     // as many checks as a note has room for beside its remedy
	var asked []string // unknown of a Service that is refused
	for _, l := range spec.Listeners {
		if _, tried := was[l.Port]; tried {
			asked = append(asked, fmt.Sprintf("port %d: %s", l.Port, l.Check))
		}
	}
	if more := len(asked) - most; more > 0 {
		asked = append(asked[:most], fmt.Sprintf("and %d more", more))
	}
	shown := ""
	if len(asked) > 0 {
		shown = " (" + strings.Join(asked, "; ") + ")"
	}
	return lb.Note{
		Grade: lb.Error, Reason: lb.ReasonCheckRolledBack,
		Text: fmt.Sprintf("the new health check%s left no healthy node, so the one before it is back, or a TCP check of the node port if nobody answers that one any more: mend what it asks for, then remove the annotation %s to have it tried again", shown, lb.AnnotationState),
	}
}
