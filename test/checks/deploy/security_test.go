package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// weaknesses returns the ways in which a pod of the controller manager has more privileges than it
// needs. It runs in the host network and has the project's token.
func weaknesses(pod corev1.PodSpec) []string {
	var found []string
	complain := func(bad bool, format string, args ...any) {
		if bad {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	complain(pod.HostPID || pod.HostIPC, "shares the node's processes")
	user := pod.SecurityContext
	if user == nil {
		user = &corev1.PodSecurityContext{}
	}
	complain(!ptr.Deref(user.RunAsNonRoot, false) || ptr.Deref(user.RunAsUser, 0) == 0 || ptr.Deref(user.RunAsGroup, 0) == 0, "runs as root")
	complain(user.SeccompProfile == nil || user.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault, "may make any system call")
	for _, volume := range pod.Volumes {
		complain(volume.ConfigMap == nil && volume.Secret == nil, "volume %s is neither a ConfigMap nor a Secret", volume.Name)
		complain(volume.Secret != nil && ptr.Deref(volume.Secret.DefaultMode, 0o644) != 0o440, "the files of Secret volume %s are open to others than user and group", volume.Name)
	}
	for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
		own := c.SecurityContext
		if own == nil {
			own = &corev1.SecurityContext{}
		}
		complain(own.RunAsUser != nil || own.RunAsNonRoot != nil || own.SeccompProfile != nil, "container %s departs from the pod's security context", c.Name)
		complain(ptr.Deref(own.Privileged, false), "container %s is privileged", c.Name)
		complain(ptr.Deref(own.AllowPrivilegeEscalation, true), "container %s may gain privileges", c.Name)
		complain(!ptr.Deref(own.ReadOnlyRootFilesystem, false), "container %s may write its root", c.Name)
		dropsAll := own.Capabilities != nil && slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(own.Capabilities.Add) == 0
		complain(!dropsAll, "container %s keeps capabilities", c.Name)
		for _, mount := range c.VolumeMounts {
			complain(!mount.ReadOnly, "container %s may write %s", c.Name, mount.MountPath)
		}
		for _, variable := range c.Env {
			complain(secretName(variable.Name), "container %s has variable %s", c.Name, variable.Name)
		}
		complain(len(c.EnvFrom) > 0, "container %s has variables from elsewhere", c.Name)
		for _, arg := range c.Args {
			complain(secretName(strings.SplitN(arg, "=", 2)[0]), "container %s has argument %s", c.Name, arg)
		}
	}
	return found
}

// secretName reports whether a variable with that name holds a secret itself, and not the path of
// one.
func secretName(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "token") || strings.Contains(name, "password") || strings.Contains(name, "secret")
}

func TestPodHasNoMoreThanItNeeds(t *testing.T) {
	pod := only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec
	if found := weaknesses(pod); len(found) > 0 {
		t.Errorf("the pod %s", strings.Join(found, "; "))
	}
}

// TestAgentHasNoMoreThanItNeeds: its privileges beyond the controller manager's, each with its
// reason.
func TestAgentHasNoMoreThanItNeeds(t *testing.T) {
	pod := only[*appsv1.DaemonSet](t, shippedIn(t, agentFolder)).Spec.Template.Spec
	allowed := map[string]string{
		"runs as root": "the files that it writes are root's",
		"container underlay-agent departs from the pod's security context": "the same",
		"container underlay-agent keeps capabilities":                      "NET_ADMIN for routes, nftables and kernel settings; cmd/underlay-agent holds it to that",
		"volume cni-conf is neither a ConfigMap nor a Secret":              "the CNI configuration is a file of the machine",
		"container underlay-agent may write /host/etc/cni/net.d":           "the same",
		"volume cni-bin is neither a ConfigMap nor a Secret":               "whether the plugins are there; it can't write them",
		"volume proc-sys-net is neither a ConfigMap nor a Secret":          "the network's settings alone",
		"container underlay-agent may write /host/proc/sys/net":            "the same",
		"volume state is neither a ConfigMap nor a Secret":                 "what has to outlive the pod, and not the machine's next start",
		"container underlay-agent may write /run/underlay":                 "the same",
		"volume keys is neither a ConfigMap nor a Secret":                  "the machine's WireGuard key, which no other machine may have",
		"container underlay-agent may write /var/lib/underlay":             "the same",
	}
	found := weaknesses(pod)
	for _, weakness := range found {
		if allowed[weakness] == "" {
			t.Errorf("the pod %s", weakness)
		}
		delete(allowed, weakness)
	}
	for weakness := range allowed {
		t.Errorf("no longer true, take it out of this list: the pod %s", weakness)
	}
}

// TestWeaknessesAreFound weakens the shipped pod in one way at a time.
func TestWeaknessesAreFound(t *testing.T) {
	pod := only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec
	for want, weaken := range map[string]func(*corev1.PodSpec, *corev1.Container){
		"shares the node's processes":      func(p *corev1.PodSpec, _ *corev1.Container) { p.HostPID = true },
		"runs as root":                     func(p *corev1.PodSpec, _ *corev1.Container) { p.SecurityContext.RunAsUser = ptr.To[int64](0) },
		"may make any system call":         func(p *corev1.PodSpec, _ *corev1.Container) { p.SecurityContext.SeccompProfile = nil },
		"neither a ConfigMap nor a Secret": func(p *corev1.PodSpec, _ *corev1.Container) { p.Volumes[0].VolumeSource = corev1.VolumeSource{} },
		"open to others":                   func(p *corev1.PodSpec, _ *corev1.Container) { p.Volumes[1].Secret.DefaultMode = nil },
		"departs from the pod's":           func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.RunAsUser = ptr.To[int64](0) },
		"is privileged":                    func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.Privileged = ptr.To(true) },
		"may gain privileges":              func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = nil },
		"may write its root":               func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.ReadOnlyRootFilesystem = nil },
		"keeps capabilities": func(_ *corev1.PodSpec, c *corev1.Container) {
			c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		"may write /etc/underlay": func(_ *corev1.PodSpec, c *corev1.Container) { c.VolumeMounts[0].ReadOnly = false },
		"has variable HCLOUD_TOKEN": func(_ *corev1.PodSpec, c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "HCLOUD_TOKEN"})
		},
		"has variables from elsewhere": func(_ *corev1.PodSpec, c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{{Prefix: "A"}} },
		"has argument --token=abc":     func(_ *corev1.PodSpec, c *corev1.Container) { c.Args = append(c.Args, "--token=abc") },
	} {
		weak := pod.DeepCopy()
		weaken(weak, &weak.Containers[0])
		found := weaknesses(*weak)
		if len(found) != 1 || !strings.Contains(found[0], want) {
			t.Errorf("found %q, want only what says %q", found, want)
		}
	}
}
