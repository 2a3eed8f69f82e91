package broker

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// An outcome is what a request leads to: a body, and descriptors. done, if set, is
// called when the reply is sent. later, if set, is waited for beside the session, and is
// what the request leads to: the client may have to say something before.
type outcome struct {
	body  any
	files []*os.File
	done  func()
	later func() (outcome, error)
}

// do carries out one request.
func (s *session) do(r control.Request) (outcome, error) {
	switch r.Op {
	case control.OpPing:
		return handle(r, func(control.Empty) (outcome, error) { return outcome{body: control.Empty{}}, nil })
	case control.OpCreate:
		return handle(r, s.create)
	case control.OpList:
		return handle(r, s.list)
	case control.OpShow:
		return handle(r, s.show)
	case control.OpRemove:
		return handle(r, s.remove)
	case control.OpAttach:
		return handle(r, s.attach)
	case control.OpDetach:
		return handle(r, s.detach)
	case control.OpDeadLetter:
		return handle(r, s.deadLetter)
	case control.OpReattach:
		return handle(r, s.reattach)
	case control.OpStop:
		return handle(r, s.stop)
	case control.OpUnstick:
		return handle(r, s.unstick)
	case control.OpNote:
		return handle(r, s.note)
	case control.OpHello:
		return outcome{}, control.Errorf(control.CodeMalformed, "hello was said before")
	}
	return outcome{}, control.Errorf(control.CodeUnknownOp, "operation %.32q is not one of ping, create, list, show, remove, attach, detach, deadletter, reattach, stop, unstick, note", string(r.Op))
}

// handle decodes a request's body for fn.
func handle[T any](r control.Request, fn func(T) (outcome, error)) (outcome, error) {
	var body T
	if err := control.DecodeBody(r, &body); err != nil {
		return outcome{}, err
	}
	return fn(body)
}

func (s *session) create(r control.CreateRequest) (outcome, error) {
	// A bad name is no secret, and a refusal should not quote one.
	if err := control.CheckTopicName(r.Name); err != nil {
		return outcome{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	if err := s.broker.access.check(s.who, Create, r.Name); err != nil {
		return outcome{}, err
	}
	t, err := s.broker.create(r.Name, r.Options, s.who.UID)
	if err != nil {
		return outcome{}, err
	}
	return t.describe("", false)
}

// list gives topics page by page. Who may do nothing with a topic does not see it.
func (s *session) list(r control.ListRequest) (outcome, error) {
	reply := control.ListReply{Topics: []control.TopicInfo{}}
	size := 0
	for _, t := range s.broker.topics.all(r.After) {
		if !s.broker.access.allows(s.who, t.name, rights...) {
			continue
		}
		info, ok := t.summary()
		if !ok {
			continue // it was removed just now
		}
		text, err := json.Marshal(info)
		if err != nil {
			return outcome{}, err
		}
		if size += len(text) + 1; size > pageBytes || r.Limit > 0 && len(reply.Topics) == r.Limit {
			reply.More = true
			break
		}
		reply.Topics = append(reply.Topics, info)
	}
	return outcome{body: reply}, nil
}

func (s *session) show(r control.ShowRequest) (outcome, error) {
	t, err := s.find(r.Name)
	if err != nil {
		return outcome{}, err
	}
	return t.describe(r.After, r.Rates)
}

// find looks a topic up for somebody who may do something with it. Others do not learn
// whether it exists.
func (s *session) find(name string) (*topic, error) {
	if err := control.CheckTopicName(name); err != nil {
		return nil, control.Errorf(control.CodeInvalid, "%v", err)
	}
	if !s.broker.access.allows(s.who, name, rights...) {
		return nil, s.broker.access.refuse(s.who, Admin, "see", name)
	}
	t := s.broker.topics.get(name)
	if t == nil {
		return nil, notFound(name)
	}
	return t, nil
}

// remove takes a topic away. Who made it may do so, as long as topics may be made.
func (s *session) remove(r control.RemoveRequest) (outcome, error) {
	t, err := s.find(r.Name)
	if err != nil {
		return outcome{}, err
	}
	own := t.owner == s.who.UID && s.broker.access.allows(s.who, r.Name, Create)
	if !own {
		if err := s.broker.access.check(s.who, Admin, r.Name); err != nil {
			return outcome{}, err
		}
	}
	return outcome{body: control.Empty{}}, s.broker.remove(r.Name, "removed by "+s.who.String())
}

func (s *session) attach(r control.AttachRequest) (outcome, error) {
	if err := checkAttach(r); err != nil {
		return outcome{}, err
	}
	right := Subscribe
	if r.Kind.Publishes() {
		right = Publish
	}
	if err := s.broker.access.check(s.who, right, r.Topic); err != nil {
		return outcome{}, err
	}
	t, err := s.topicFor(r.Topic)
	if err != nil {
		return outcome{}, err
	}
	a := &attachment{
		topic: t, holder: s.holder, who: s.who, kind: r.Kind, name: r.Name, since: time.Now(),
	}
	pick(&a.name, s.name)
	if err := s.hold(a, r); err != nil {
		return outcome{}, err
	}
	return s.handOver(a, r.LaneOnly)
}

// hold gets a slot for a, and sees to it that the next broker knows whose it is before the
// client does.
func (s *session) hold(a *attachment, r control.AttachRequest) error {
	h := s.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session.Load() != s {
		return errMoved
	}
	if err := s.broker.ledger.checkAttachments(len(h.held)); err != nil {
		return err
	}
	if err := a.topic.attach(a, r); err != nil {
		return err
	}
	failpoint.Hit(FailAttachAdmitted)
	h.held[a.id] = a
	if err := h.keep(); err != nil {
		h.letGo([]*attachment{a}, false)
		return err
	}
	failpoint.Hit(FailAttachRecorded)
	return nil
}

// checkAttach tells what is wrong with an attach request by itself.
func checkAttach(r control.AttachRequest) error {
	var err error
	switch {
	case control.CheckTopicName(r.Topic) != nil:
		err = control.CheckTopicName(r.Topic)
	case control.CheckLabel(r.Name) != nil:
		err = control.CheckLabel(r.Name)
	case r.Kind == control.KindMember && control.CheckGroupName(r.Group) != nil:
		err = control.CheckGroupName(r.Group)
	case r.Kind != control.KindPublisher && r.Kind != control.KindSubscriber && r.Kind != control.KindMember:
		return control.Errorf(control.CodeInvalid, "kind %.32q is not one of publisher, subscriber, member", string(r.Kind))
	case r.Kind != control.KindMember && (r.Group != "" || r.Start != nil):
		return control.Errorf(control.CodeInvalid, "group and start belong to kind member, not %s", r.Kind)
	case r.Kind != control.KindSubscriber && (r.Policy != "" || r.EvictLag != 0 || r.EvictAfter != 0):
		return control.Errorf(control.CodeInvalid, "policy, evict_lag and evict_after_ns belong to kind subscriber, not %s", r.Kind)
	}
	if err != nil {
		return control.Errorf(control.CodeInvalid, "%v", err)
	}
	return nil
}

// topicFor finds a topic to attach to, or makes it on demand.
func (s *session) topicFor(name string) (*topic, error) {
	b := s.broker
	for {
		if t := b.topics.get(name); t != nil {
			return t, nil
		}
		if !b.config.OnDemand.covers(name) {
			return nil, notFound(name)
		}
		if err := b.access.check(s.who, Create, name); err != nil {
			return nil, err
		}
		t, err := b.create(name, TopicOptions{}, s.who.UID)
		if errors.Is(err, &control.Error{Code: control.CodeExists}) {
			continue // another client was faster
		}
		return t, err
	}
}

// handOver is the reply to an attach, with the topic's memory unless the client has it.
func (s *session) handOver(a *attachment, laneOnly bool) (outcome, error) {
	reply := control.AttachReply{Attachment: a.id, TopicID: a.topic.id, Slot: a.slot}
	if a.group != nil {
		reply.Group, reply.Member, reply.MaxRedeliveries = a.group.index, a.member, a.topic.options.MaxRedeliveries
		if !a.topic.buries() {
			reply.MaxRedeliveries = -1
		}
	}
	s.broker.figures.attached(a.kind)
	s.log.Debug("attached", append(a.logged(), "topic", a.topic.name)...)
	if laneOnly {
		return outcome{body: reply}, nil
	}
	files, done, err := a.topic.files(a.kind)
	if err != nil {
		s.letGo(a)
		return outcome{}, err
	}
	return outcome{body: reply, files: files, done: done}, nil
}

func (s *session) letGo(a *attachment) {
	s.holder.mu.Lock()
	defer s.holder.mu.Unlock()
	s.holder.letGo([]*attachment{a}, false)
}

func (s *session) detach(r control.DetachRequest) (outcome, error) {
	h := s.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session.Load() != s {
		return outcome{}, errMoved
	}
	a := h.held[r.Attachment]
	if a == nil {
		return outcome{}, control.Errorf(control.CodeNotFound, "this client has no attachment %d", r.Attachment)
	}
	a.revoked.Store(r.Revoked)
	h.letGo([]*attachment{a}, false)
	s.log.Debug("detached", append(a.logged(), "topic", a.topic.name)...)
	return outcome{body: control.Empty{}}, nil
}

// note keeps what a client says about an attachment. The next broker does not know it.
func (s *session) note(r control.NoteRequest) (outcome, error) {
	if err := control.CheckNote(r.Text); err != nil {
		return outcome{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	h := s.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.held[r.Attachment]
	if a == nil {
		return outcome{}, control.Errorf(control.CodeNotFound, "this client has no attachment %d", r.Attachment)
	}
	a.note.Store(&r.Text)
	return outcome{body: control.Empty{}}, nil
}

func (s *session) deadLetter(r control.DeadLetterRequest) (outcome, error) {
	if err := control.CheckGroupName(r.Group); err != nil {
		return outcome{}, control.Errorf(control.CodeInvalid, "%v", err)
	}
	t, err := s.find(r.Topic)
	if err != nil {
		return outcome{}, err
	}
	if err := s.broker.access.check(s.who, Subscribe, r.Topic); err != nil {
		return outcome{}, err
	}
	moved, err := s.broker.bury(t, r.Group)
	if err != nil {
		return outcome{}, err
	}
	reply := control.DeadLetterReply{Moved: moved}
	if t.buries() {
		reply.Topic = control.DeadLetterTopic(r.Topic)
	}
	return outcome{body: reply}, nil
}
