package lb_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// webIP returns a primary IP that is given to shop/web of demo.
func webIP() lb.PrimaryIP {
	return lb.PrimaryIP{
		ID: 41, Name: "web", Labels: handed(), Net: netip.MustParsePrefix("203.0.113.7/32"), Location: "fsn1", NetworkZone: "eu-central",
	}
}

func webIPv6() lb.PrimaryIP {
	ip := webIP()
	ip.ID, ip.Name, ip.Net = 61, "web-6", netip.MustParsePrefix("2001:db8:7::/64")
	return ip
}

func changed(ip lb.PrimaryIP, change func(*lb.PrimaryIP)) lb.PrimaryIP {
	ip.Labels = maps.Clone(ip.Labels)
	change(&ip)
	return ip
}

// named returns a Service shop/web with annotations that name primary IPs.
func named(ipv4, ipv6 string) (lb.Service, lb.Defaults) {
	svc, d := plain()
	svc.Namespace, svc.Name = "shop", "web"
	svc.Annotations = map[string]string{lb.AnnotationPrimaryIPv4: ipv4, lb.AnnotationPrimaryIPv6: ipv6}
	return svc, d
}

// wants compares notes by grade, reason, field, value and a part of the text.
func wants(t *testing.T, got []lb.Note, want ...lb.Note) {
	t.Helper()
	same := slices.EqualFunc(got, want, func(g, w lb.Note) bool {
		return g.Grade == w.Grade && g.Reason == w.Reason && g.Field == w.Field && g.Value == w.Value &&
			strings.Contains(g.Text, w.Text)
	})
	if !same {
		t.Errorf("notes are\n%+v\nwant\n%+v", got, want)
	}
}

// A survey does not look up primary IPs: the remembered name of one is kept, though the other one
// is unknown.
func TestOnePrimaryIPIsRemembered(t *testing.T) {
	svc, d := named("web", "web-6")
	spec := parse(t, svc, d)
	have := lb.State{ID: 1, Labels: map[string]string{lb.AnnotationPrimaryIPv4: "web"}}
	labels := spec.RememberedPrimaryIPs(have).Labels()
	if _, unknown := labels[lb.AnnotationPrimaryIPv6]; labels[lb.AnnotationPrimaryIPv4] != "web" || unknown {
		t.Errorf("labels %v", labels)
	}
}

// A load balancer is created only with primary IPs that exist, are of the right family, are given
// to the Service, are free, and are in the right location.
func TestPrimaryIPsAtCreation(t *testing.T) {
	refusal := func(text string) lb.Note {
		return lb.Note{Grade: lb.Error, Reason: lb.ReasonPrimaryIP, Field: lb.AnnotationPrimaryIPv4, Value: "web", Text: text}
	}
	with := func(n lb.Note, change func(*lb.Note)) lb.Note {
		change(&n)
		return n
	}
	unlabelled := changed(webIP(), func(ip *lb.PrimaryIP) { ip.Labels = nil })
	for _, c := range []struct {
		name  string
		named string // "web" if empty
		found lb.PrimaryIP
		list  []lb.GivenAddress
		place [2]string // annotated location and zone
		want  []lb.Note
	}{
		{name: "by name", found: webIP()},
		{name: "by ID", named: "41", found: webIP()},
		{name: "a name that is another one's ID", named: "42", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.Name = "42" }), want: []lb.Note{with(refusal("no primary IP"), func(n *lb.Note) { n.Value = "42" })}},
		{name: "unknown", found: webIPv6(), want: []lb.Note{refusal("the project has no primary IP of this ID or name")}},
		{name: "of the other family", found: changed(webIPv6(), func(ip *lb.PrimaryIP) { ip.Name = "web" }), want: []lb.Note{refusal("is of family IPv6: name it in underlay.dev/primary-ipv6")}},
		{name: "not given", found: unlabelled, want: []lb.Note{refusal(`run "hcloud primary-ip add-label 41 underlay.dev/adopt-cluster=demo underlay.dev/adopt-namespace=shop underlay.dev/adopt-service=web"`)}},
		{name: "given to another namespace", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.Labels["underlay.dev/adopt-namespace"] = "blog" }), want: []lb.Note{refusal("add-label 41")}},
		{name: "given to another cluster", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.Labels["underlay.dev/adopt-cluster"] = "prod" }), want: []lb.Note{refusal("add-label 41")}},
		{name: "not given, and in use", found: changed(unlabelled, func(ip *lb.PrimaryIP) { ip.Holder = "server 9" }), want: []lb.Note{refusal("add-label 41")}},
		{name: "given by the configuration", found: unlabelled, list: []lb.GivenAddress{{Name: "web", Namespace: "shop", Service: "web"}}},
		{name: "given by the configuration by ID", found: unlabelled, list: []lb.GivenAddress{{Name: "41", Namespace: "shop", Service: "web"}}},
		{name: "given by the configuration to another", found: unlabelled, list: []lb.GivenAddress{{Name: "web", Namespace: "shop", Service: "api"}, {Name: "web", Namespace: "blog", Service: "web"}}, want: []lb.Note{refusal("add-label 41")}},
		{name: "in use", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.Holder = "load balancer 17" }), want: []lb.Note{with(refusal("load balancer 17 has this primary IP"), func(n *lb.Note) { n.Reason = lb.ReasonPrimaryIPInUse })}},
		{name: "goes with its load balancer", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.AutoDelete = true }), want: []lb.Note{with(refusal(`run "hcloud primary-ip update --auto-delete=false 41"`), func(n *lb.Note) { n.Grade = lb.Warning })}},
		{name: "elsewhere than the default says", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.Location = "hel1" })},
		{name: "elsewhere than annotated", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.Location = "hel1" }), place: [2]string{"fsn1", ""}, want: []lb.Note{with(refusal(`the primary IP "web" is in hel1`), func(n *lb.Note) { n.Field, n.Value = lb.AnnotationLocation, "fsn1" })}},
		{name: "in the zone", found: changed(webIP(), func(ip *lb.PrimaryIP) { ip.Location = "hel1" }), place: [2]string{"", "eu-central"}},
		{name: "in another zone", found: webIP(), place: [2]string{"", "us-east"}, want: []lb.Note{with(refusal("is in fsn1, in network zone eu-central"), func(n *lb.Note) { n.Field, n.Value = lb.AnnotationNetworkZone, "us-east" })}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref := "web"
			if c.named != "" {
				ref = c.named
			}
			svc, d := named(ref, "")
			d.PrimaryIPs = c.list
			svc.Annotations[lb.AnnotationLocation] = c.place[0]
			svc.Annotations[lb.AnnotationNetworkZone] = c.place[1]
			spec := parse(t, svc, d)
			if unknown := spec.UnknownPrimaryIPs(lb.State{}); !slices.Equal(unknown, []string{ref}) {
				t.Errorf("to be looked for are %q", unknown)
			}
			got, notes := spec.WithPrimaryIPs(lb.State{}, []lb.PrimaryIP{c.found})
			wants(t, notes, c.want...)
			if len(c.want) > 0 && c.want[0].Grade == lb.Error {
				return
			}
			if got.PrimaryIPv4.ID != c.found.ID || got.Location != c.found.Location || got.NetworkZone != "" {
				t.Errorf("created with %+v in %q, %q", got.PrimaryIPv4, got.Location, got.NetworkZone)
			}
			// The result is remembered in a label, so it isn't looked up again.
			made := lb.State{
				ID: 5, Labels: lb.Diff(got, lb.State{})[0].(lb.Create).Spec.Labels(), PrimaryIPv4: c.found.ID,
			}
			if unknown := spec.UnknownPrimaryIPs(made); (len(unknown) > 0) != c.found.AutoDelete {
				t.Errorf("afterwards %q are to be looked for", unknown)
			}
		})
	}
}

func TestTwoPrimaryIPs(t *testing.T) {
	svc, d := named("web", "web-6")
	d.Location = ""
	spec, notes := parse(t, svc, d).WithPrimaryIPs(lb.State{}, []lb.PrimaryIP{webIPv6(), webIP()})
	if wants(t, notes); spec.PrimaryIPv4.ID != 41 || spec.PrimaryIPv6.ID != 61 || spec.Location != "fsn1" || len(spec.Hindrances()) > 0 {
		t.Errorf("created with %+v, %+v in %q", spec.PrimaryIPv4, spec.PrimaryIPv6, spec.Location)
	}
	away := changed(webIPv6(), func(ip *lb.PrimaryIP) { ip.Location = "nbg1" })
	_, notes = parse(t, svc, d).WithPrimaryIPs(lb.State{}, []lb.PrimaryIP{webIP(), away})
	wants(t, notes, lb.Note{Grade: lb.Error, Reason: lb.ReasonPrimaryIP, Field: lb.AnnotationPrimaryIPv6, Value: "web-6", Text: "is in nbg1 and that of underlay.dev/primary-ipv4 in fsn1"})
	// All problems are reported at once.
	_, notes = parse(t, svc, d).WithPrimaryIPs(lb.State{}, nil)
	if len(notes) != 2 {
		t.Errorf("notes are %+v, want one for each", notes)
	}
	svc.Annotations[lb.AnnotationPrimaryIPv4], svc.Annotations[lb.AnnotationPrimaryIPv6] = "", ""
	if len(parse(t, svc, d).Hindrances()) != 1 {
		t.Error("without primary IPs a load balancer needs a location")
	}
}

// An existing load balancer keeps its addresses with any annotation; only the label that remembers
// them changes.
func TestPrimaryIPsOfExistingLoadBalancers(t *testing.T) {
	svc, d := named("web", "")
	spec := parse(t, svc, d)
	plainSpec := spec
	plainSpec.PrimaryIPv4.Named = ""
	have, err := apply(lb.State{}, lb.Diff(plainSpec, lb.State{}))
	if err != nil {
		t.Fatal(err)
	}
	other := lb.Note{Grade: lb.Error, Reason: lb.ReasonImmutable, Field: lb.AnnotationPrimaryIPv4, Value: "web", Text: "keeps its address 203.0.113.1, because the cloud exchanges no address of one that exists: delete the Service and create it again, or remove this"}
	for _, c := range []struct {
		name   string
		id     int64 // of the load balancer's address
		found  []lb.PrimaryIP
		notes  []lb.Note
		labels bool // the label is set
	}{
		{"it has it", 41, []lb.PrimaryIP{webIP()}, nil, true},
		{"it has it, without consent", 41, []lb.PrimaryIP{changed(webIP(), func(ip *lb.PrimaryIP) { ip.Labels, ip.Holder = nil, "load balancer 1" })}, nil, true},
		{"its address tells that it has it", 0, []lb.PrimaryIP{changed(webIP(), func(ip *lb.PrimaryIP) { ip.Net = netip.MustParsePrefix("203.0.113.1/32") })}, nil, true},
		{"it would take it along", 41, []lb.PrimaryIP{changed(webIP(), func(ip *lb.PrimaryIP) { ip.AutoDelete = true })}, []lb.Note{{Reason: lb.ReasonPrimaryIP, Field: lb.AnnotationPrimaryIPv4, Value: "web", Text: "--auto-delete=false 41"}}, false},
		{"it has another one", 42, []lb.PrimaryIP{webIP()}, []lb.Note{other}, false},
		{"nobody knows what is named", 42, nil, []lb.Note{other}, false},
		{"it has another one, which goes with it", 42, []lb.PrimaryIP{changed(webIP(), func(ip *lb.PrimaryIP) { ip.AutoDelete = true })}, []lb.Note{other}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			have := clone(have)
			have.PrimaryIPv4 = c.id
			got, notes := spec.WithPrimaryIPs(have, c.found)
			wants(t, notes, c.notes...)
			ops := lb.Diff(got, have)
			after, err := apply(have, ops)
			if err != nil || len(ops) > 1 || (after.Labels["underlay.dev/primary-ipv4"] == "web") != c.labels {
				t.Errorf("ops are %v, labels %v, %v", ops, after.Labels, err)
			}
			if looked := spec.UnknownPrimaryIPs(after); (len(looked) == 0) != c.labels {
				t.Errorf("to be looked for at rest: %q", looked)
			}
			if again, notes := spec.WithPrimaryIPs(after, c.found); len(lb.Diff(again, after)) > 0 ||
				len(notes) != len(c.notes) {
				t.Errorf("the next look does %v and says %+v", lb.Diff(again, after), notes)
			}
			// Without the annotation the label is removed.
			if removed, err := apply(after, lb.Diff(plainSpec, after)); err != nil || removed.Labels["underlay.dev/primary-ipv4"] != "" {
				t.Errorf("without the annotation: labels %v, %v", removed.Labels, err)
			}
		})
	}
}

// A name that is no valid label value is remembered in another form.
func TestRememberedNamesOfPrimaryIPs(t *testing.T) {
	for _, name := range []string{"web", "41", "My web address", strings.Repeat("x", 127), "ä"} {
		svc, d := named(name, "")
		spec, _ := parse(t, svc, d).WithPrimaryIPs(lb.State{}, []lb.PrimaryIP{
			changed(webIP(), func(ip *lb.PrimaryIP) { ip.Name = name }),
		})
		label := spec.Labels()["underlay.dev/primary-ipv4"]
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q is remembered as %q", name, label)
		}
		have := lb.State{ID: 1, Labels: map[string]string{"underlay.dev/primary-ipv4": label}}
		svc.Annotations[lb.AnnotationPrimaryIPv4] = name + "x"
		if len(spec.UnknownPrimaryIPs(have)) != 0 || len(parse(t, svc, d).UnknownPrimaryIPs(have)) != 1 {
			t.Errorf("%q is remembered as another name", name)
		}
	}
}

// The note with the command has room for the longest names.
func TestConsentForAPrimaryIPIsEnough(t *testing.T) {
	svc, d := named("web", "")
	d.Cluster, svc.Namespace, svc.Name = strings.Repeat("c", 63), strings.Repeat("n", 63), strings.Repeat("s", 63)
	ip := changed(webIP(), func(ip *lb.PrimaryIP) { ip.Labels = map[string]string{}; ip.ID = 1 << 52; ip.Name = "web" })
	spec := parse(t, svc, d)
	_, notes := spec.WithPrimaryIPs(lb.State{}, []lb.PrimaryIP{ip})
	if len(notes) != 1 || len(notes[0].Text) > 500 {
		t.Fatalf("notes are %+v", notes)
	}
	_, command, _ := strings.Cut(notes[0].Text, `add-label 4503599627370496 `)
	command, _, _ = strings.Cut(command, `"`)
	for label := range strings.FieldsSeq(command) {
		key, value, _ := strings.Cut(label, "=")
		ip.Labels[key] = value
	}
	if _, notes := spec.WithPrimaryIPs(lb.State{}, []lb.PrimaryIP{ip}); len(notes) > 0 {
		t.Errorf("with what was asked for: %+v", notes)
	}
}
