"""The page in a real browser: draw, learn, answer, forget, reload, two tabs."""

import time

import pytest

BAR = [[(0.5, 0.15), (0.5, 0.5), (0.5, 0.85)]]
MINUS = [[(0.15, 0.5), (0.5, 0.5), (0.85, 0.5)]]
VEE = [[(0.15, 0.15), (0.5, 0.85), (0.85, 0.15)]]


class Page:
    """What a person does on the page."""

    def __init__(self, browser, address=None):
        self.browser = browser
        if address is not None:
            browser.get(address)
        self.wait(lambda: self.text("features") == "504")

    def element(self, name):
        from selenium.webdriver.common.by import By

        return self.browser.find_element(By.ID, name)

    def text(self, name):
        return self.element(name).text

    def all(self, selector):
        from selenium.webdriver.common.by import By

        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{self.text('message')!r} {self.answers()}"
            time.sleep(0.02)

    def draw(self, strokes, pointer="mouse"):
        from selenium.webdriver.common.actions.action_builder import ActionBuilder
        from selenium.webdriver.common.actions.pointer_input import PointerInput

        canvas = self.element("canvas")
        box = canvas.rect
        builder = ActionBuilder(self.browser, mouse=PointerInput(pointer, pointer), duration=20)
        action = builder.pointer_action
        for stroke in strokes:
            for place, (x, y) in enumerate(stroke):
                offset = round((x - 0.5) * box["width"]), round((y - 0.5) * box["height"])
                action.move_to(canvas, *offset)
                if not place:
                    action.pointer_down()
            action.pointer_up()
        builder.perform()

    def learn(self, label, strokes, pointer="mouse"):
        rows = self.rows()
        self.element("clear").click()
        self.draw(strokes, pointer)
        self.element("label").send_keys(label)
        self.element("learn").click()
        self.wait(lambda: self.rows() == rows + 1)

    def rows(self):
        return int(self.text("rows"))

    def bars(self):
        """The text of each answer, read at once since answers come and go."""
        script = "return [...document.querySelectorAll('#answer li')].map(e => e.innerText.trim())"
        return self.browser.execute_script(script)

    def answers(self):
        return [text.splitlines()[0] for text in self.bars()]

    def thumbnails(self):
        return self.all(".thumbs button")


@pytest.fixture
def page(browser, address):
    browser.set_window_size(1200, 1400)
    return Page(browser, address)


def test_it_learns_from_drawings_and_forgets_them_exactly(page):
    assert page.answers() == []
    page.learn("bar", BAR)
    page.learn("minus", MINUS, pointer="touch")
    page.draw(BAR, pointer="pen")
    page.wait(lambda: page.answers()[:1] == ["bar"])
    shares = page.bars()
    page.learn("vee", VEE)
    page.draw(VEE)
    page.wait(lambda: page.answers()[:1] == ["vee"])
    assert len(page.thumbnails()) == 3
    assert page.text("gates").endswith("13,664")
    page.all('.thumbs button[aria-label="Forget this vee"]')[0].click()
    page.wait(lambda: page.rows() == 2)
    page.wait(lambda: "vee" not in page.answers())
    assert page.all("#answer .delta")  # what the answer was before is shown
    page.element("clear").click()
    page.draw(BAR)
    page.wait(lambda: page.bars() == shares)


def test_a_reload_keeps_the_lesson_and_a_new_tab_has_its_own(page, address):
    page.learn("bar", BAR)
    page.learn("minus", MINUS)
    page.browser.refresh()
    page.wait(lambda: page.text("rows") == "2")
    assert len(page.thumbnails()) == 2
    first = page.browser.current_window_handle
    page.browser.switch_to.new_window("tab")
    other = Page(page.browser, address)
    assert other.rows() == 0
    other.learn("one", VEE)
    assert other.rows() == 1
    other.browser.switch_to.window(first)
    assert page.rows() == 2
    page.draw(MINUS)
    page.wait(lambda: page.answers()[:1] == ["minus"])


def test_keys_go_on_at_the_drawing_after_a_forgotten_one(page):
    from selenium.webdriver.common.keys import Keys

    for label, strokes in (("bar", BAR), ("minus", MINUS), ("vee", VEE)):
        page.learn(label, strokes)
    page.thumbnails()[0].send_keys(Keys.ENTER)
    page.wait(lambda: page.rows() == 2)
    focused = page.browser.switch_to.active_element
    assert focused.get_attribute("aria-label") == "Forget this minus"
    focused.send_keys(Keys.ENTER)
    page.wait(lambda: page.rows() == 1)


def test_a_cleared_stroke_does_not_hinder_the_next(page):
    """The pointer may still be down, or its end may never come."""
    from selenium.webdriver.common.keys import Keys

    canvas = page.element("canvas")
    script = "document.getElementById('canvas').dispatchEvent(new PointerEvent(arguments[0], {"
    script += "pointerId: arguments[1], button: 0, clientX: arguments[2], clientY: arguments[2]}))"
    place = canvas.rect["x"] + 50
    page.browser.execute_script("document.getElementById('canvas').setPointerCapture = () => {}")
    page.browser.execute_script(script, "pointerdown", 1, place)
    canvas.send_keys(Keys.ESCAPE)
    page.browser.execute_script(script, "pointerdown", 2, place)
    page.browser.execute_script(script, "pointermove", 2, place + 40)
    page.element("label").send_keys("bar")
    page.element("learn").click()
    page.wait(lambda: page.rows() == 1)


def test_labels_are_text_and_not_markup(page):
    name = "<b id=x>&"
    page.learn(name, BAR)
    page.learn("minus", MINUS)
    page.draw(BAR)
    page.wait(lambda: page.answers()[:1] == [name])
    assert not page.all("#x")


def test_lessons_are_saved_and_opened_again(page, tmp_path):
    from selenium.webdriver.support.ui import Select

    page.learn("bar", BAR)
    page.learn("minus", MINUS)
    page.element("save").click()
    prompt = page.browser.switch_to.alert
    prompt.send_keys("mine")
    prompt.accept()
    page.wait(lambda: "Saved to" in page.text("message"))
    assert (tmp_path / "lessons" / "mine.safetensors").is_file()
    page.wait(lambda: len(page.all("#start option")) == 3)
    Select(page.element("start")).select_by_value("empty")
    page.element("new").click()
    page.wait(lambda: page.rows() == 0)
    Select(page.element("start")).select_by_value("mine")
    page.element("new").click()
    page.wait(lambda: page.rows() == 2)
    page.draw(MINUS)
    page.wait(lambda: page.answers()[:1] == ["minus"])


def test_errors_are_shown(page):
    page.element("label").send_keys("bar")
    page.element("learn").click()
    page.wait(lambda: page.text("message") == "Draw something first.")
    page.draw(BAR)
    page.browser.execute_script("document.getElementById('label').maxLength = 100")
    page.element("label").send_keys("x" * 30)
    page.element("learn").click()
    page.wait(lambda: "1 to 20 characters" in page.text("message"))
    assert page.rows() == 0


def test_the_page_breaks_no_rule_of_its_own(page):
    """Nothing violates the content security policy, and no script fails."""
    page.learn("bar", BAR)
    page.learn("minus", MINUS)
    page.draw(VEE)
    page.wait(lambda: page.answers())
    assert [entry for entry in page.browser.get_log("browser") if entry["level"] == "SEVERE"] == []
